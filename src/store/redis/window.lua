-- What a trip policy remembers of the calls of a closed circuit, and whether it is enough to trip (R17, R18).
-- `FAILURES` holds the failed and slow samples by name, each with a letter for which of the two it was. They
-- are scored by their marks: the place among the calls where the window counts calls, the instant elsewhere.

local FLAGS = { 'f', 's', 'b' }

-- An empty memory. What is in `FAILURES` is none of it while `fresh`.
local function new_memory(rules)
  return {
    kind = rules.memory,
    fresh = true,
    sampled = nil,
    length = 0,
    seen = 0,
    samples = 0,
    failures = 0,
    slow = 0,
    buckets = {},
    reporters = {},
  }
end

-- Failures older than the lookback are at or below this; nothing is, if it is negative.
local function too_old(rules, now)
  return now - rules.lookback
end

-- What is in the window at `now`: failures, slow calls, samples.
local function counts(memory, rules, now)
  if memory.kind == 'run' then
    return memory.length, 0, memory.length
  elseif memory.kind == 'instants' then
    if memory.fresh then
      return 0, 0, 0
    end
    local old = too_old(rules, now)
    local least = old < 0 and '-inf' or '(' .. int(old)
    local failures = redis.call('ZCOUNT', FAILURES, least, '+inf')
    return failures, 0, failures
  elseif memory.kind == 'calls' then
    return memory.failures, memory.slow, memory.samples
  end
  local failures, slow, samples = 0, 0, 0
  for _, bucket in ipairs(memory.buckets) do
    if not is_over(bucket.start, rules.lookback, now) then
      failures = failures + bucket.failures
      slow = slow + bucket.slow
      samples = samples + bucket.samples
    end
  end
  return failures, slow, samples
end

-- Whether a rate policy's limits are reached by these counts among `samples` calls.
local function reaches(rules, failures, slow, samples)
  return failures / samples >= rules.rate
    or (rules.slow_rate ~= nil and slow / samples >= rules.slow_rate)
end

local function rate_is_reached(memory, rules, now)
  local failures, slow, samples = counts(memory, rules, now)
  return samples >= rules.minimum_calls and reaches(rules, failures, slow, samples)
end

-- Whether the next success, or a later one, can trip: by filling the minimum of calls, or by being the
-- first to look after old successes aged out.
local function success_may_trip(memory, rules, now)
  local failures, slow, samples = counts(memory, rules, now)
  local with_it = math.min(samples + 1, rules.window_calls or math.huge)
  return reaches(rules, failures, slow, math.max(with_it, rules.minimum_calls))
end

-- Counts calls of a window of calls; what they push out is forgotten with its name.
local function add_calls(memory, rules, calls, now)
  memory.seen = memory.seen + calls
  memory.samples = math.min(memory.samples + calls, rules.window_calls)
  memory.sampled = now
  local out = memory.seen - rules.window_calls
  if out <= 0 then
    return
  end
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', FAILURES, '-inf', int(out))) do
    local flag = string.sub(member, -1)
    if flag ~= 's' then
      memory.failures = math.max(memory.failures - 1, 0)
    end
    if flag ~= 'f' then
      memory.slow = math.max(memory.slow - 1, 0)
    end
  end
  redis.call('ZREMRANGEBYSCORE', FAILURES, '-inf', int(out))
end

-- Counts calls in the bucket of `now`: the start is floor(now / width), so that all processes mean the same
-- bucket. A bucket leaves when its start is as old as the span.
local function add_to_bucket(memory, rules, failures, slow, samples, now)
  local kept = {}
  for _, bucket in ipairs(memory.buckets) do
    -- Only from the oldest on: they are in order.
    if #kept > 0 or not is_over(bucket.start, rules.lookback, now) then
      table.insert(kept, bucket)
    end
  end
  memory.buckets = kept
  memory.sampled = now
  local width = math.max(math.ceil(rules.lookback / BUCKETS), 1)
  local start = now - now % width
  local newest = kept[#kept]
  if newest == nil or newest.start < start then
    newest = { start = start, failures = 0, slow = 0, samples = 0 }
    table.insert(kept, newest)
  end
  newest.failures = newest.failures + failures
  newest.slow = newest.slow + slow
  newest.samples = newest.samples + samples
end

-- Counts successes that came one after another; whether one of them would have tripped.
local function add_successes(memory, rules, batch, now)
  if batch == 0 or rules.rate == nil then
    return false
  end
  -- A success lowers the rate once the minimum is there, so the first one that sees the minimum reached is
  -- the one that trips, if any does.
  local _, _, samples = counts(memory, rules, now)
  local trips = success_may_trip(memory, rules, now) and samples + batch >= rules.minimum_calls
  if memory.kind == 'calls' then
    add_calls(memory, rules, batch, now)
  else
    add_to_bucket(memory, rules, 0, 0, batch, now)
  end
  return trips
end

-- Whether a sample of that name was counted before.
local function is_known(memory, call)
  if memory.fresh then
    return false
  end
  for _, flag in ipairs(FLAGS) do
    if redis.call('ZSCORE', FAILURES, call .. flag) then
      return true
    end
  end
  return false
end

-- The mark of the last of `calls` more, and the lowest mark that is in the window after it.
local function marks(memory, rules, calls, now)
  if memory.kind == 'calls' then
    local place = memory.seen + calls
    local samples = math.min(memory.samples + calls, rules.window_calls)
    return place, place - samples + 1
  elseif rules.lookback then
    return now, math.max(now + 1 - rules.lookback, 0)
  end
  return now, 0
end

-- Takes note of who reports a failure, for as long as it is in the window; how many there are.
local function report(memory, process, failed, mark, first)
  local reporters, number = {}, 0
  for who, last in pairs(memory.reporters) do
    if last >= first then
      reporters[who] = last
      number = number + 1
    end
  end
  if failed then
    if not reporters[process] then
      number = number + 1
    end
    reporters[process] = mark
    if number > NAMES then
      local oldest
      for who, last in pairs(reporters) do
        local earlier = oldest == nil or last < reporters[oldest]
        if earlier or (last == reporters[oldest] and who < oldest) then
          oldest = who
        end
      end
      reporters[oldest] = nil
      number = number - 1
    end
  end
  memory.reporters = reporters
  return number
end

-- Counts one call, remembers its name if it failed or was slow, and tells whether the policy trips by it.
-- A custom rule is not asked: whoever made it says `trip`.
local function add_sample(memory, rules, call, sample, mark, now)
  local failed = sample.failed
  local slow = sample.slow and rules.rate ~= nil
  if memory.kind == 'calls' then
    add_calls(memory, rules, 1, now)
    memory.failures = memory.failures + (failed and 1 or 0)
    memory.slow = memory.slow + (sample.slow and 1 or 0)
  elseif memory.kind == 'buckets' then
    add_to_bucket(memory, rules, failed and 1 or 0, sample.slow and 1 or 0, 1, now)
  elseif memory.kind == 'run' then
    memory.length = failed and memory.length + 1 or 0
    memory.sampled = failed and now or nil
  elseif failed then
    local old = too_old(rules, now)
    if old >= 0 then
      redis.call('ZREMRANGEBYSCORE', FAILURES, '-inf', int(old))
    end
    local most = rules.failures or CUSTOM_FAILURES
    local superfluous = redis.call('ZCARD', FAILURES) - most
    if superfluous >= 0 then
      redis.call('ZREMRANGEBYRANK', FAILURES, 0, superfluous)
    end
    memory.sampled = now
  elseif rules.success_forgets then
    memory.sampled = nil
  end
  if failed or slow then
    local flag = failed and (slow and 'b' or 'f') or 's'
    redis.call('ZADD', FAILURES, int(mark), call .. flag)
  elseif rules.success_forgets then
    redis.call('DEL', FAILURES)
    memory.reporters = {}
  end
  if memory.kind == 'run' then
    return failed and memory.length >= rules.failures
  elseif memory.kind == 'instants' then
    return failed and rules.failures ~= nil and redis.call('ZCARD', FAILURES) >= rules.failures
  end
  return rate_is_reached(memory, rules, now)
end

-- Forgets the oldest names where the window adds samples up and does not bound them.
local function forget_names(memory)
  if memory.kind == 'run' or memory.kind == 'buckets' then
    local superfluous = redis.call('ZCARD', FAILURES) - NAMES
    if superfluous > 0 then
      redis.call('ZREMRANGEBYRANK', FAILURES, 0, superfluous - 1)
    end
  end
end
