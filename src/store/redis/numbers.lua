-- A step on a shared record, by the rules of the circuit (R34). The files of this folder are put together to
-- one script; `Stored::step` in Rust is the reference for all of it.
--
-- KEYS: the record, the failures of its window, the probes of its round. Nothing else is touched.
-- ARGV[1]: a JSON text with the step, the settings, and how others are told of a change.
-- No clock is read and no number is drawn: `now` and `random` are passed in (R3).
--
-- Instants and spans are whole microseconds below 2^53, which a double holds exactly. `cjson.decode` reads
-- them exactly; `cjson.encode` writes 14 digits, so numbers are written by `int`.

local RECORD, FAILURES, PROBES = KEYS[1], KEYS[2], KEYS[3]
local MAX = 9007199254740991

-- What `format` says in records that this script can read.
local FORMAT = '1'
-- How many failures a custom rule sees at most.
local CUSTOM_FAILURES = 100
-- How many names of samples are remembered where the window does not say, and how many of processes.
local NAMES = 128
local BUCKETS = 10

-- Arithmetic saturates (R3).
local function add(at, span)
  return math.min(at + span, MAX)
end

local function since(later, earlier)
  return math.max(later - earlier, 0)
end

-- A span is over at its very end (R4).
local function is_over(at, span, now)
  return since(now, at) >= span
end

local function int(number)
  return string.format('%.0f', number)
end

-- A whole number that was written by `int`, or nothing.
local function to_int(text)
  if type(text) == 'string' and #text <= 16 and string.find(text, '^%d+$') then
    local number = tonumber(text)
    if number <= MAX then
      return number
    end
  end
  return nil
end

-- What JSON says with `null`.
local function given(value)
  if value == cjson.null then
    return nil
  end
  return value
end
