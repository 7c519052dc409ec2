-- The circuit: every transition rule that is of use on a shared record (R6 to R24, R36).

-- The changes of state that this step makes, oldest first.
local transitions = {}

local function new_record(rules)
  return { version = 0, revision = 0, attempt = 0, newest = 0, phase = 'closed', memory = new_memory(rules) }
end

local function state(record)
  if record.phase == 'forced' then
    return 'forced_' .. record.order
  end
  return record.phase
end

-- Each state has what belongs to it alone (R2).
local function closed(rules, ramping_since)
  return { phase = 'closed', memory = new_memory(rules), since = ramping_since }
end

local function open_until(till)
  return { phase = 'open', till = till }
end

local function half_open(due, successes, inconclusive)
  return {
    phase = 'half_open',
    due = due,
    probes = {},
    succeeded = {},
    successes = successes,
    inconclusive = inconclusive,
  }
end

local function forced(order, till, reason)
  return { phase = 'forced', order = order, till = till, reason = reason }
end

local OF_ONE_STATE = {
  'memory', 'since', 'till', 'due', 'probes', 'succeeded', 'successes', 'inconclusive', 'order', 'reason',
}

local function put(record, phase)
  for _, name in ipairs(OF_ONE_STATE) do
    record[name] = phase[name]
  end
  record.phase = phase.phase
end

-- The version after the present one: it follows the shared time, and what the process knows (R1). That of an
-- order whose time is over follows from the record alone, since each process ends it by itself.
local function next_version(record, step, cause, now)
  local version = math.min(record.version + 1, MAX)
  if cause == 'expired' then
    return version
  end
  return math.max(version, step.version + 1, step.now, now)
end

-- The one place that changes the phase: with a new version, and a transition if the state changed (R25).
local function enter(record, step, phase, cause, evidence, now)
  local from = state(record)
  put(record, phase)
  record.version = next_version(record, step, cause, now)
  local to = state(record)
  if from == to then
    return
  end
  local transition = {
    from = from,
    to = to,
    cause = cause,
    at = now,
    epoch = record.version,
    evidence = {
      failures = evidence.failures or 0,
      slow_calls = evidence.slow_calls or 0,
      samples = evidence.samples or 0,
      successes = evidence.successes or 0,
      inconclusive = evidence.inconclusive or 0,
      attempt = record.attempt,
      ['until'] = record.till,
      reason = record.reason,
    },
  }
  record.last = transition
  table.insert(transitions, transition)
end

-- How long a break is (R22): the base grown and capped, then lengthened by a share of the jitter. The order of
-- the operations is that of the reference, so that both compute the same doubles.
local function break_length(rules, attempt, random)
  local length = rules.break_duration
  if rules.factor and rules.factor > 1 then
    for _ = 1, attempt do
      local grown = length * rules.factor
      if length >= rules.longest or grown == length then
        break
      end
      length = grown
    end
    length = math.min(length, rules.longest)
  end
  return math.min(math.floor(length * (1 + rules.jitter * random)), MAX)
end

local function open(record, step, rules, attempt, cause, evidence, now)
  local random = rules.jitter > 0 and step.random or 0
  record.attempt = attempt
  local till = add(now, break_length(rules, attempt, random))
  enter(record, step, open_until(till), cause, evidence, now)
end

-- A recovery may begin a ramp-up (R36).
local function close(record, step, rules, cause, evidence, now)
  record.attempt = 0
  local since_now = cause == 'recovered' and rules.ramp_up and now or nil
  enter(record, step, closed(rules, since_now), cause, evidence, now)
end

-- When the ramp-up is over, if there is one.
local function ramp_end(record, rules)
  if record.since and rules.ramp_up then
    return add(record.since, rules.ramp_up)
  end
  return nil
end

-- Begins a step: a ramp-up or an order whose time is over ends first (R8, R36). Time alone never closes, so a
-- forced open becomes a break that is over (R23).
local function begin(record, step, rules, now)
  if record.since then
    local over = ramp_end(record, rules)
    if over == nil or over <= now then
      record.since = nil
      record.newest = now
    end
  end
  if record.phase == 'forced' and record.till and record.till <= now then
    local next = record.order == 'open' and open_until(record.till) or closed(rules)
    record.newest = now
    enter(record, step, next, 'expired', {}, now)
  end
end

local function trip(record, step, rules, now)
  local failures, slow, samples = counts(record.memory, rules, now)
  local evidence = { failures = failures, slow_calls = slow, samples = samples }
  open(record, step, rules, 0, 'tripped', evidence, now)
end

-- The probes that hold a slot under a running lease (R7).
local function held(record, now)
  local number = 0
  for _, probe in ipairs(record.probes) do
    if probe.lease_end > now then
      number = number + 1
    end
  end
  return number
end

-- Whether a call is refused, by the record as it stands (R6, R7, R15, R23).
local function is_refused(record, rules, now)
  if record.phase == 'open' then
    return record.till > now
  elseif record.phase == 'half_open' then
    local running = held(record, now)
    local waits = record.inconclusive >= rules.max_inconclusive and running > 0
    return running >= rules.max_probes or waits
  end
  return record.phase == 'forced' and record.order == 'open'
end

-- Probes are in the order of their leases' ends, and where these are equal by their names.
local function put_in_order(probes)
  table.sort(probes, function(one, other)
    if one.lease_end == other.lease_end then
      return one.call < other.call
    end
    return one.lease_end < other.lease_end
  end)
  return probes
end

-- Gives a slot out, over those whose lease is over (R16).
local function seat(record, call, lease_end, now)
  local probes = {}
  for _, probe in ipairs(record.probes) do
    if probe.lease_end > now then
      table.insert(probes, probe)
    end
  end
  table.insert(probes, { call = call, lease_end = lease_end })
  record.probes = put_in_order(probes)
end

-- Takes a slot back, if it was not passed on; whether its lease was running (R13, R16).
local function give_back(record, call, now)
  local probes, running = {}, false
  for _, probe in ipairs(record.probes) do
    if probe.call ~= call then
      table.insert(probes, probe)
    elseif probe.lease_end > now then
      running = true
    end
  end
  record.probes = probes
  return running
end

-- Counts how a probe ended (R13 to R16).
local function end_probe(record, step, rules, call, ending, now)
  local running = give_back(record, call, now)
  local cause
  if ending == 'success' then
    record.inconclusive = 0
    record.successes = record.successes + 1
    if record.successes < rules.successes_to_close then
      table.insert(record.succeeded, call)
      if #record.succeeded > NAMES then
        table.remove(record.succeeded, 1)
      end
      return
    end
    cause = 'recovered'
  elseif ending == 'failure' then
    cause = 'probe_failed'
  elseif ending == 'ignored' and running then
    record.inconclusive = record.inconclusive + 1
    if record.inconclusive < rules.max_inconclusive or held(record, now) > 0 then
      return
    end
    cause = 'inconclusive'
  else
    return
  end
  local evidence = { successes = record.successes, inconclusive = record.inconclusive }
  if cause == 'recovered' then
    close(record, step, rules, cause, evidence, now)
  elseif cause == 'probe_failed' then
    open(record, step, rules, record.attempt + 1, cause, evidence, now)
  else
    open(record, step, rules, record.attempt, cause, evidence, now)
  end
end
