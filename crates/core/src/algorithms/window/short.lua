-- Windows in short.lua: the twin of window.rs, under limits whose width and phase are whole
-- microseconds. Numbers: N, m, edge, denials are counted, phase, width.
--
-- All products are below 2^53, and so exact, but for that of a count that was carried over from a
-- larger limit: that one is then too large as well, which is all that is asked of it. So is a sum
-- above 2^53, which may be rounded.
local last, n, m, edge, counted, phase, width, first, rest, narrow
--@each
  if numbers ~= last then -- mostly one limit, and one request of each key
    last, n, m, edge, counted, phase, width, first, rest = numbers, unpack('<ddddddd', numbers)
    narrow = '<I4I4' .. string.rep('I4', m + 1)
  end
  local counts, bytes, low, high = nil, 4, 0, 0
  if value then
    bytes = (#value - 9) / (m + 1) -- of each count
    if bytes ~= 4 and bytes ~= 8 or sub(value, 1, 1) ~= 'w' then
      return redis.error_reply('FOREIGN ' .. KEYS[i])
    end
    local format = bytes == 4 and narrow or '<I4I4' .. string.rep('I8', m + 1)
    counts = {unpack(format, value, 2)}
    low, high = counts[1], counts[2]
  end

  -- The window of now: its number, how many windows it is after the newest of the state, and what
  -- is left of it.
  local current, left = 0, phase - now
  if left <= 0 then
    -- Lua's remainder rounds a quotient: of moments below 2^51 it finds the right one.
    local part = -left % width
    current, left = (-left - part) / width + 1, width - part
  end
  local index = high * HALF + low
  local shift = current - index
  if shift <= 0 then
    if shift < 0 then left = width end -- the clock was set back
    current, shift = index, 0
  else
    low = current % HALF
    high = (current - low) / HALF
  end
  local newest, others, oldest = 0, 0, 0
  if counts and shift <= m then
    if shift == 0 then newest = counts[3] end
    for back = shift == 0 and 4 or 3, m + 2 - shift do others = others + counts[back] end
    oldest = counts[m + 3 - shift]
  end

  local charged, cost, at = newest, first, rest
  while true do
    local room = n - others - charged - cost
    local fits = room >= 0
    if fits and oldest > room then
      if edge == 1 then -- full
        fits = false
      elseif edge == 2 then -- weighted
        fits = oldest * left < (room + 1) * width
      end
    end
    if fits then
      charged = charged + cost
    elseif counted == 1 then
      charged = charged + math.min(cost, math.max(0, math.min(2 * n, 9007199254740992) - others - charged))
    end
    if at > #numbers then break end
    cost, at = unpack('<d', numbers, at)
  end

  if charged > newest then
    local body
    if not counts or shift > m then
      bytes = 4
      body = string.rep('\0', 4 * m)
    elseif shift == 0 then
      body = sub(value, 10 + bytes)
      if newest > 0 then kept = phase + (index + m - 1) * width end -- whatever the edge was
    else
      body = string.rep('\0', bytes * (shift - 1)) .. sub(value, 10, 9 + bytes * (m + 1 - shift))
    end
    if charged >= HALF and bytes == 4 then
      bytes, body = 8, string.gsub(body, '....', '%0\0\0\0\0')
    end
    after = 'w' .. pack(bytes == 4 and '<I4I4I4' or '<I4I4I8', low, high, charged) .. body
    expires = phase + (current + (edge == 0 and m - 1 or m)) * width + 2
  end
