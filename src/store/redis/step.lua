-- The step itself: what is asked for, by whom, and what becomes of it.

local input = cjson.decode(ARGV[1])
local step = input.step
local rules = {}
for name, value in pairs(input.rules) do
  rules[name] = given(value)
end

-- What was asked for, and with what.
local action, args = step.action, {}
if type(action) == 'table' then
  action, args = next(action)
end

-- Actions that a process may begin with that knows of no record: a closed one that vanished says the same.
local STARTS = { record = true, force = true, release = true, reset = true }

local kind = redis.call('TYPE', RECORD).ok
local present, corrupt = read(kind)
if present and present.kept and present.kept <= step.now then
  present = nil
end
local is_new = present == nil
local known_version = present and present.version or 0
local function remembers(record)
  return record.memory ~= nil and record.memory.sampled ~= nil
end
local remembered = present ~= nil and remembers(present)

local record = present or new_record(rules)
-- A `now` that is older than the newest instant seen counts as that one (R3).
local now = math.max(step.now, record.newest)

-- What is kept for a policy of another kind is of no use; a break that is too long for the settings is cut (R3).
if record.memory and record.memory.kind ~= rules.memory then
  record.memory = new_memory(rules)
end
if record.phase == 'open' then
  record.till = math.min(record.till, add(now, rules.longest_break))
end
begin(record, step, rules, now)

local actions = {}

function actions.acquire()
  if record.phase == 'half_open' then
    for _, probe in ipairs(record.probes) do
      -- Who asks again, not knowing what became of it, gets no second slot.
      if probe.call == args.call and probe.lease_end > now then
        return 'done', false
      end
    end
  end
  if is_refused(record, rules, now) then
    return 'refused', false
  elseif record.phase ~= 'open' and record.phase ~= 'half_open' then
    return 'done', false
  end
  record.newest = now
  if record.phase == 'open' then
    enter(record, step, half_open(record.till, 0, 0), 'probe_due', {}, now)
  end
  seat(record, args.call, add(now, args.lease), now)
  return 'done', true
end

function actions.record()
  local memory, sample = record.memory, given(args.sample)
  if not memory then
    return 'stale', false
  elseif sample and is_known(memory, args.call) then
    return 'known', false
  end
  make_room(record, is_new, kind)
  is_new, kind = false, 'hash'
  record.newest = now
  local calls = args.successes + (sample and 1 or 0)
  local mark, first = marks(memory, rules, calls, now)
  local process = string.sub(args.call, 1, 16)
  local reporters = report(memory, process, sample ~= nil and sample.failed, mark, first)
  local may_trip = reporters >= step.min_reporters
  if add_successes(memory, rules, args.successes, now) and may_trip then
    -- What ended after those successes is late then.
    trip(record, step, rules, now)
  elseif sample then
    if add_sample(memory, rules, args.call, sample, mark, now) and may_trip then
      trip(record, step, rules, now)
    end
  end
  if record.memory then
    forget_names(memory)
  end
  return 'done', true
end

function actions.settle()
  if record.phase ~= 'half_open' then
    return 'stale', false
  end
  if args.ending == 'success' then
    for _, call in ipairs(record.succeeded) do
      if call == args.call then
        return 'known', false
      end
    end
  end
  record.newest = now
  end_probe(record, step, rules, args.call, args.ending, now)
  return 'done', true
end

function actions.trip()
  if not record.memory then
    return 'stale', false
  end
  local reporters = 0
  for _ in pairs(record.memory.reporters) do
    reporters = reporters + 1
  end
  if reporters < step.min_reporters then
    return 'refused', false
  end
  record.newest = now
  trip(record, step, rules, now)
  return 'done', true
end

function actions.force()
  local ttl = given(args.ttl)
  -- The ttl was looked at by whoever was given the order.
  if ttl and (ttl < 1 or ttl > MAX) then
    return 'done', false
  end
  record.newest = now
  local order = forced(args.kind, ttl and add(now, ttl), args.reason)
  if record.phase == 'forced' and record.order == args.kind then
    put(record, order)
  else
    record.attempt = 0
    enter(record, step, order, 'forced', {}, now)
  end
  return 'done', true
end

function actions.release()
  if record.phase ~= 'forced' then
    return 'done', false
  end
  record.newest = now
  close(record, step, rules, 'released', {}, now)
  return 'done', true
end

function actions.reset()
  record.newest = now
  if record.phase == 'forced' then
    record.attempt = 0
    record.version = next_version(record, step, 'reset', now)
  else
    close(record, step, rules, 'reset', {}, now)
  end
  return 'done', true
end

-- Takes over what a process remembers, as another process would (R3, R29), but for probes: their names hold
-- everywhere.
local function offered_phase(phase_name, offered, newest)
  local longest = add(newest, rules.longest_break)
  if phase_name == 'closed' then
    local ramping_since = rules.ramp_up and given(offered.ramping_since)
    return closed(rules, ramping_since and math.min(ramping_since, newest))
  elseif phase_name == 'open' then
    return open_until(math.min(offered['until'], longest))
  elseif phase_name == 'forced' then
    return forced(offered.kind, given(offered['until']), offered.reason)
  end
  local phase, seated = half_open(math.min(offered.due, longest), offered.successes, offered.inconclusive), {}
  for _, probe in ipairs(offered.probes) do
    if not seated[probe.call] then
      seated[probe.call] = true
      table.insert(phase.probes, { call = probe.call, lease_end = probe.lease_end })
    end
  end
  put_in_order(phase.probes)
  return phase
end

function actions.offer()
  local offered = args.record
  local newest = math.max(math.min(offered.newest, step.now), record.newest)
  local phase_name, phase = next(offered.phase)
  put(record, offered_phase(phase_name, phase, newest))
  record.version = offered.version
  record.attempt = offered.attempt
  record.newest = newest
  record.last = given(offered.last)
  return 'done', true
end

-- What is to be done, unless it knows another version than the present one (fencing).
local function decide()
  local version = record.version
  if action == 'look' then
    return 'done', false
  elseif action == 'offer' then
    if version >= args.record.version then
      return 'stale', false
    end
  elseif step.version ~= version and not (version == 0 and STARTS[action]) then
    return 'stale', false
  end
  return actions[action]()
end

local answer, writes = decide()
local is_news = false
if writes then
  local changed = record.version ~= known_version
  -- By the time, so that they also grow where a record was lost and given back.
  record.revision = math.max(math.min(record.revision + 1, MAX), step.now)
  is_news = changed or record.phase ~= 'closed' or remembered ~= remembers(record)
  local worthless
  record.kept, worthless = kept_until(record, rules, math.max(step.now, record.newest))
  if worthless then
    redis.call('DEL', RECORD, FAILURES, PROBES)
  else
    write(record, is_new, kind, step.now)
  end
else
  transitions = {}
end

local view = view_json(answer, record, rules, transitions, corrupt, step.now)
if is_news then
  redis.call('PUBLISH', input.channel, input.told .. view .. '}')
end
return view
