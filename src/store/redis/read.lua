-- What the keys hold. What cannot be read counts as no record (`nil`), and is told.

local FIELDS = {
  'format', 'version', 'revision', 'attempt', 'newest', 'kept', 'last', 'phase',
  'since', 'memory', 'sampled', 'length', 'seen', 'samples', 'failures', 'slow', 'buckets', 'reporters',
  'until', 'due', 'successes', 'inconclusive', 'succeeded', 'order', 'reason',
}
local STATES = { closed = true, open = true, half_open = true, forced_open = true, forced_closed = true }
local CAUSES = {
  tripped = true, probe_due = true, probe_failed = true, inconclusive = true, recovered = true,
  forced = true, released = true, expired = true, reset = true, present = true,
}
local MEMORIES = { run = true, instants = true, calls = true, buckets = true }
-- What a change of state tells of counts; the later three are of 32 bits.
local EVIDENCE = { 'failures', 'slow_calls', 'samples', 'successes', 'inconclusive', 'attempt' }
local CALL = '^' .. string.rep('[0-9a-f]', 16) .. '%-' .. string.rep('[0-9a-f]', 16) .. '$'

local function is_whole(number)
  return type(number) == 'number' and number >= 0 and number <= MAX and number % 1 == 0
end

-- A count of 32 bits, or nothing.
local function to_count(text)
  local number = to_int(text)
  return number and number < 4294967296 and number or nil
end

-- Whether a decoded value is a change of state.
local function is_transition(value)
  if type(value) ~= 'table' or type(value.evidence) ~= 'table' then
    return false
  end
  local evidence = value.evidence
  for i, name in ipairs(EVIDENCE) do
    local number = evidence[name]
    if not is_whole(number) or (i > 3 and number >= 4294967296) then
      return false
    end
  end
  local till, reason = given(evidence['until']), given(evidence.reason)
  return (STATES[value.from] and STATES[value.to] and CAUSES[value.cause]) ~= nil
    and is_whole(value.at)
    and is_whole(value.epoch)
    and (till == nil or is_whole(till))
    and (reason == nil or type(reason) == 'string')
end

local function read_buckets(text)
  local buckets, earlier = {}, -1
  for part in string.gmatch(text, '[^,]+') do
    local start, failures, slow, samples = string.match(part, '^(%d+):(%d+):(%d+):(%d+)$')
    local bucket = {
      start = to_int(start),
      failures = to_int(failures),
      slow = to_int(slow),
      samples = to_int(samples),
    }
    if not (bucket.start and bucket.failures and bucket.slow and bucket.samples) then
      return nil
    end
    if bucket.start <= earlier then
      return nil
    end
    earlier = bucket.start
    table.insert(buckets, bucket)
  end
  return buckets
end

local function read_reporters(text)
  local reporters = {}
  for part in string.gmatch(text, '[^,]+') do
    local process, last = string.match(part, '^(%x+):(%d+)$')
    if not process or #process ~= 16 or not to_int(last) then
      return nil
    end
    reporters[process] = to_int(last)
  end
  return reporters
end

local function read_memory(fields)
  local memory = {
    kind = fields.memory,
    fresh = false,
    sampled = to_int(fields.sampled),
    length = to_int(fields.length or '0'),
    seen = to_int(fields.seen or '0'),
    samples = to_int(fields.samples or '0'),
    failures = to_int(fields.failures or '0'),
    slow = to_int(fields.slow or '0'),
    buckets = read_buckets(fields.buckets or ''),
    reporters = read_reporters(fields.reporters or ''),
  }
  local whole = memory.length and memory.seen and memory.samples and memory.failures and memory.slow
  if not whole or not memory.buckets or not memory.reporters or not MEMORIES[memory.kind] then
    return nil
  end
  if fields.sampled and not memory.sampled then
    return nil
  end
  return memory
end

-- The probes of the round, in the order of their leases' ends.
local function read_probes()
  local probes = {}
  local found = redis.call('ZRANGE', PROBES, 0, -1, 'WITHSCORES')
  for i = 1, #found, 2 do
    local lease_end = to_int(found[i + 1])
    if not lease_end or not string.find(found[i], CALL) then
      return nil
    end
    table.insert(probes, { call = found[i], lease_end = lease_end })
  end
  return probes
end

-- The probes of the round whose success was counted, oldest first.
local function read_succeeded(text)
  local succeeded = {}
  for call in string.gmatch(text, '[^,]+') do
    table.insert(succeeded, call)
  end
  return succeeded
end

-- The record that these fields make, or nothing.
local function read_fields(fields)
  local record = {
    version = to_int(fields.version),
    revision = to_int(fields.revision),
    attempt = to_count(fields.attempt),
    newest = to_int(fields.newest),
    kept = to_int(fields.kept),
    phase = fields.phase,
  }
  if not (record.version and record.revision and record.attempt and record.newest) then
    return nil
  end
  if fields.kept and not record.kept then
    return nil
  end
  if fields.last then
    local readable, last = pcall(cjson.decode, fields.last)
    if not readable or not is_transition(last) then
      return nil
    end
    record.last = last
  end
  if record.phase == 'closed' then
    record.memory = read_memory(fields)
    record.since = to_int(fields.since)
    return record.memory and (record.since or not fields.since) and record or nil
  elseif record.phase == 'open' then
    record.till = to_int(fields['until'])
    return record.till and record or nil
  elseif record.phase == 'half_open' then
    record.due = to_int(fields.due)
    record.successes = to_count(fields.successes)
    record.inconclusive = to_count(fields.inconclusive)
    record.succeeded = read_succeeded(fields.succeeded or '')
    record.probes = read_probes()
    local whole = record.due and record.successes and record.inconclusive and record.probes
    return whole and record or nil
  elseif record.phase == 'forced' then
    record.order = fields.order
    record.till = to_int(fields['until'])
    record.reason = fields.reason
    local whole = (record.order == 'open' or record.order == 'closed') and record.reason
    return whole and (record.till or not fields['until']) and record or nil
  end
  return nil
end

-- The record, if there is one; and whether there is something else in its place.
local function read(kind)
  for _, key in ipairs({ FAILURES, PROBES }) do
    local other = redis.call('TYPE', key).ok
    if other ~= 'none' and other ~= 'zset' then
      return nil, true
    end
  end
  if kind == 'none' then
    return nil, false
  elseif kind ~= 'hash' then
    return nil, true
  end
  local values, fields = redis.call('HMGET', RECORD, unpack(FIELDS)), {}
  for i, name in ipairs(FIELDS) do
    fields[name] = values[i] or nil
  end
  if fields.format ~= FORMAT then
    return nil, true
  end
  local record = read_fields(fields)
  return record, record == nil
end
