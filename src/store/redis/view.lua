-- The record as others see it, as JSON. Written by hand, for `cjson` writes no exact numbers and no empty arrays.

local function number_or_null(number)
  return number and int(number) or 'null'
end

local function text_or_null(text)
  return text and cjson.encode(text) or 'null'
end

local function transition_json(transition)
  local evidence = transition.evidence
  local numbers = {}
  for _, name in ipairs(EVIDENCE) do
    table.insert(numbers, '"' .. name .. '":' .. int(evidence[name]))
  end
  return '{"from":"' .. transition.from
    .. '","to":"' .. transition.to
    .. '","cause":"' .. transition.cause
    .. '","at":' .. int(transition.at)
    .. ',"epoch":' .. int(transition.epoch)
    .. ',"evidence":{' .. table.concat(numbers, ',')
    .. ',"until":' .. number_or_null(given(evidence['until']))
    .. ',"reason":' .. text_or_null(given(evidence.reason))
    .. '}}'
end

-- The failures that a custom rule looks at, oldest first; for other policies none.
local function failures_json(memory, rules, now)
  if not rules.custom or memory.kind ~= 'instants' or memory.fresh then
    return '[]'
  end
  local old = too_old(rules, now)
  local least = old < 0 and '-inf' or '(' .. int(old)
  local found = redis.call('ZRANGEBYSCORE', FAILURES, least, '+inf', 'WITHSCORES')
  local instants = {}
  for i = 2, #found, 2 do
    -- What is no instant was put there by somebody else.
    local at = to_int(found[i])
    if at then
      table.insert(instants, int(at))
    end
  end
  return '[' .. table.concat(instants, ',') .. ']'
end

local function probes_json(record)
  local probes = {}
  for _, probe in ipairs(record.probes) do
    table.insert(probes, '{"call":"' .. probe.call .. '","lease_end":' .. int(probe.lease_end) .. '}')
  end
  return '[' .. table.concat(probes, ',') .. ']'
end

local function phase_json(record, rules, now)
  if record.phase == 'closed' then
    return '{"closed":{"remembers":' .. tostring(record.memory.sampled ~= nil)
      .. ',"failures":' .. failures_json(record.memory, rules, now)
      .. ',"ramping_since":' .. number_or_null(record.since) .. '}}'
  elseif record.phase == 'open' then
    return '{"open":{"until":' .. int(record.till) .. '}}'
  elseif record.phase == 'half_open' then
    return '{"half_open":{"due":' .. int(record.due)
      .. ',"probes":' .. probes_json(record)
      .. ',"successes":' .. int(record.successes)
      .. ',"inconclusive":' .. int(record.inconclusive) .. '}}'
  end
  return '{"forced":{"kind":"' .. record.order
    .. '","until":' .. number_or_null(record.till)
    .. ',"reason":' .. cjson.encode(record.reason) .. '}}'
end

local function view_json(answer, record, rules, made, corrupt, now)
  local changes = {}
  for _, transition in ipairs(made) do
    table.insert(changes, transition_json(transition))
  end
  return '{"answer":"' .. answer
    .. '","record":{"version":' .. int(record.version)
    .. ',"revision":' .. int(record.revision)
    .. ',"attempt":' .. int(record.attempt)
    .. ',"newest":' .. int(record.newest)
    .. ',"phase":' .. phase_json(record, rules, now)
    .. ',"last":' .. (record.last and transition_json(record.last) or 'null')
    .. '},"transitions":[' .. table.concat(changes, ',')
    .. '],"corrupt":' .. tostring(corrupt) .. '}'
end
