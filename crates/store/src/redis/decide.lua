-- Decides a batch of requests on the keys it names, with one read and at most one write for
-- each key. All charges of a request are made, or none, but those under limits that count denials:
-- those are made whoever refuses. Nothing is written before everything has been read and decided.
--
-- KEYS      the keys of the batch, each once
-- ARGV[1]   microseconds since 1970, for tests; empty: the server's clock, read once
-- ARGV[..]  for each key: the letter of its twin, and the limit's numbers
-- ARGV[..]  the charges: which key, what to do, four numbers
-- ARGV[..]  if anything is: for each key the value that the caller remembers, or nothing
-- Answers   the moment; then each value as it was found, or as the caller remembers it. Of one
--           key, by the server's clock: one text, `seconds micros value`, see gcra/short.lua

local now, time = tonumber(ARGV[1]), nil
if not now then
  time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end

-- Values expire at whole steps of so many microseconds: EXPIRY_STEP_MICROS.
local STEP = 4000000

local twins = {}
--@twins
local count = #KEYS
local found, twin, limit, state, changed = {now}, {}, {}, {}, {}
for i = 1, count do
  local pack = ARGV[i + 1]
  local t = twins[string.sub(pack, 1, 1)]
  twin[i], limit[i], state[i] = t, {struct.unpack(t.numbers, pack, 2)}, false
  local value = redis.call('GET', KEYS[i])
  found[i + 1] = value
  if value then
    local read = t.read(value, limit[i])
    if read == nil then return redis.error_reply('FOREIGN ' .. KEYS[i]) end
    state[i] = read
  end
  local hint = ARGV[count + 2 + i]
  if hint and hint ~= '' then
    local told = t.learn(state[i], t.read(hint, limit[i]))
    if told then state[i], changed[i], found[i + 1] = told, true, hint end
  end
end

-- What to do, by number; 8 is added to a charge that is made even if the request is refused, 16 to
-- the last charge of a request. OTHERWISE is an alternative to the charge before it, which is asked
-- if that one is denied. ONCE excuses the next charge if it denies, and is made together with it.
-- HEADROOM denies the next charge if it denies, and is never made; its numbers are those of both.
local ENFORCE, SHADOW, REFUND, OTHERWISE, ONCE, HEADROOM = 0, 1, 2, 3, 4, 5
local charges, at, size = ARGV[count + 2], 1, #ARGV[count + 2]
local key, passed, regardless, after, length, admitted = {}, {}, {}, {}, 0, true
local denied, others = true, true -- of the chain: its charges so far, and all chains before it
local excused, shed, once -- the charge before: ONCE or HEADROOM that denies, the state after ONCE
while at <= size do
  local i, act, a, b, c, d
  i, act, a, b, c, d, at = struct.unpack('<HBdddd', charges, at)
  local last = act >= 16
  if last then act = act - 16 end
  local t = twin[i]
  length = length + 1
  key[length], regardless[length] = i, act >= 8
  if act >= 8 then act = act - 8 end
  if act == REFUND then
    passed[length], after[length] = true, t.refund(limit[i], state[i], a, b, c, d)
  elseif act == OTHERWISE and not denied then
    passed[length], after[length] = true, nil
  elseif act == ONCE then
    local pass, next = t.decide(limit[i], state[i], a, b, c, d)
    passed[length], excused = pass, not pass
    if pass then once, after[length] = next, nil else after[length] = next end
  elseif act == HEADROOM then
    passed[length], after[length], shed = true, nil, not t.decide(limit[i], state[i], a, b, c, d)
  elseif excused then
    passed[length], after[length], denied, excused, others = true, nil, false, nil, admitted
  else
    local pass, next = t.decide(limit[i], state[i], a, b, c, d)
    if shed then
      pass, shed = false, nil
      if not regardless[length] then next = nil end
    end
    if once then
      if pass then after[length - 1] = once end
      once = nil
    end
    passed[length], after[length], denied = pass, next, not pass
    if act ~= OTHERWISE then others = admitted end
    if act == OTHERWISE then admitted = pass and others or admitted
    elseif act == ENFORCE and denied then admitted = false end
  end
  if last then
    for j = 1, length do
      local next = after[j]
      if next ~= nil and (admitted or regardless[j] or not passed[j]) then
        state[key[j]], changed[key[j]] = next, true
      end
      after[j] = nil
    end
    length, admitted, denied, others = 0, true, true, true
    excused, shed, once = nil, nil, nil
  end
end

for i = 1, count do
  if changed[i] then
    if state[i] then
      local value, expires = twin[i].write(state[i], limit[i])
      if expires then
        local ms = string.format('%d', (math.floor(expires / STEP) + 1) * STEP / 1000)
        redis.call('SET', KEYS[i], value, 'PXAT', ms)
      else
        redis.call('SET', KEYS[i], value) -- until it is deleted
      end
    elseif found[i + 1] then
      redis.call('DEL', KEYS[i])
    end
  end
end
if count == 1 and time then return time[1] .. ' ' .. time[2] .. ' ' .. (found[2] or '') end
return found
