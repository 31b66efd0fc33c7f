-- Interval buckets in short.lua: the twin of interval.rs, under limits whose interval and phase
-- are whole microseconds. Numbers: M, R, strokes begin with the first take, phase, interval.
--
-- All moments are below 2^51, and so exact, and Lua's remainder, which rounds a quotient, finds the
-- right one. A product of refills or a sum of costs above 2^53 may be rounded: then it is above M
-- as well.
--@each
  local most, refill, first, phase, every, at = unpack('<ddddd', numbers)
  local missing, low, high, stroke = 0, nil, nil, nil
  if value then
    local bytes = #value
    if (bytes == 13 or bytes == 17) and sub(value, 1, 1) == 'i' then
      missing, low, high = unpack(bytes == 13 and '<I4I4I4' or '<I8I4I4', value, 2)
    end
    -- More than M is of other numbers: left to the caller.
    if not low or missing > most then return redis.error_reply('FOREIGN ' .. KEYS[i]) end
    stroke = high * 4294967 + math.ceil((high * 296 + low) / 1000) -- 2^32 = 4294967 x 1000 + 296
    kept = stroke
    if now >= stroke then
      local strokes = (now - stroke - (now - stroke) % every) / every + 1
      missing, stroke, low = missing - refill * strokes, stroke + strokes * every, nil
    end
  end
  if missing <= 0 then
    missing, low = 0, nil
    if first == 1 then
      stroke = now + every
    elseif now < phase then
      stroke = phase
    else
      stroke = now + every - (now - phase) % every
    end
  end

  local charged = missing
  repeat
    local cost
    cost, at = unpack('<d', numbers, at)
    if charged + cost <= most then charged = charged + cost end
  until at > #numbers

  if charged > missing then
    if not low then
      high = math.floor(stroke / HALF)
      low = (stroke - high * HALF) * 1000
      local rest = low % HALF
      high, low = high * 1000 + (low - rest) / HALF, rest
    end
    after = 'i' .. pack(charged < HALF and '<I4I4I4' or '<I8I4I4', charged, low, high)
    expires = stroke + (math.ceil(charged / refill) - 1) * every + 2
  end
