-- What is kept, and for how long (R31). Keys are written and given their lifetime in the same step.

-- When the record says nothing any more that a new one does not say; `nil`: never. Second, whether it is worth
-- nothing now. That a change closed it is remembered for a while, so that what was written before the change is
-- known to be late.
local function kept_until(record, rules, now)
  if record.phase == 'closed' then
    local failures, slow, samples = counts(record.memory, rules, now)
    local till
    if record.memory.sampled and failures + slow + samples > 0 then
      till = add(record.memory.sampled, rules.margin)
    end
    local over = ramp_end(record, rules)
    if over and over > now then
      till = math.max(till or 0, over)
    end
    if record.version > 0 then
      till = math.max(till or 0, add(now, rules.margin))
    end
    if not till then
      return nil, true
    end
    return math.max(till, now), false
  elseif record.phase == 'open' then
    return math.max(add(record.till, rules.margin), now), false
  elseif record.phase == 'half_open' then
    local last = record.due
    for _, probe in ipairs(record.probes) do
      last = math.max(last, probe.lease_end)
    end
    return math.max(add(last, rules.margin), now), false
  elseif not record.till then
    return nil, false
  end
  local till = record.order == 'open' and add(record.till, rules.margin) or record.till
  return math.max(till, now), false
end

local function buckets_text(buckets)
  local texts = {}
  for _, bucket in ipairs(buckets) do
    table.insert(texts, table.concat({
      int(bucket.start), int(bucket.failures), int(bucket.slow), int(bucket.samples),
    }, ':'))
  end
  return #texts > 0 and table.concat(texts, ',') or nil
end

local function reporters_text(reporters)
  local texts = {}
  for process, last in pairs(reporters) do
    table.insert(texts, process .. ':' .. int(last))
  end
  -- The order of `pairs` is nobody's business.
  table.sort(texts)
  return #texts > 0 and table.concat(texts, ',') or nil
end

local function whole(number)
  return number and int(number) or nil
end

-- What is 0 for most kinds of windows is not written.
local function above_zero(number)
  return number > 0 and int(number) or nil
end

local function fields_of(record)
  local fields = {
    format = FORMAT,
    version = int(record.version),
    revision = int(record.revision),
    attempt = int(record.attempt),
    newest = int(record.newest),
    kept = whole(record.kept),
    last = record.last and transition_json(record.last),
    phase = record.phase,
    since = whole(record.since),
    ['until'] = whole(record.till),
    due = whole(record.due),
    successes = whole(record.successes),
    inconclusive = whole(record.inconclusive),
    succeeded = record.succeeded and #record.succeeded > 0 and table.concat(record.succeeded, ',') or nil,
    order = record.order,
    reason = record.reason,
  }
  local memory = record.memory
  if memory then
    fields.memory = memory.kind
    fields.sampled = whole(memory.sampled)
    fields.length = above_zero(memory.length)
    fields.seen = above_zero(memory.seen)
    fields.samples = above_zero(memory.samples)
    fields.failures = above_zero(memory.failures)
    fields.slow = above_zero(memory.slow)
    fields.buckets = buckets_text(memory.buckets)
    fields.reporters = reporters_text(memory.reporters)
  end
  return fields
end

-- Clears what does not belong to the record that is written: all, where none could be read. The first command
-- is one that a server without memory refuses: it would take any after one that it took.
local function make_room(record, is_new, kind)
  if kind == 'none' or kind == 'hash' then
    redis.call('HSET', RECORD, 'format', FORMAT)
  end
  if is_new then
    redis.call('DEL', RECORD, FAILURES, PROBES)
  elseif not record.memory or record.memory.fresh then
    redis.call('DEL', FAILURES)
  end
  if record.memory then
    record.memory.fresh = false
  end
end

local function write(record, is_new, kind, now)
  make_room(record, is_new, kind)
  local fields, given_fields, others = fields_of(record), {}, {}
  for _, name in ipairs(FIELDS) do
    if fields[name] then
      table.insert(given_fields, name)
      table.insert(given_fields, fields[name])
    else
      table.insert(others, name)
    end
  end
  redis.call('HSET', RECORD, unpack(given_fields))
  redis.call('HDEL', RECORD, unpack(others))
  redis.call('DEL', PROBES)
  for _, probe in ipairs(record.probes or {}) do
    redis.call('ZADD', PROBES, int(probe.lease_end), probe.call)
  end
  for _, key in ipairs({ RECORD, FAILURES, PROBES }) do
    if record.kept then
      local rest = math.floor((since(record.kept, now) + 999) / 1000)
      redis.call('PEXPIRE', key, int(math.max(rest, 1)))
    else
      redis.call('PERSIST', key)
    end
  end
end
