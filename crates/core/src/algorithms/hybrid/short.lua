-- Hybrids in short.lua: the twin of hybrid.rs, under limits whose span is of whole microseconds,
-- of fewer than 2^26 permits. Numbers: N, span; from the start of a window to where its bucket is
-- empty: microseconds, nanoseconds, and Nths; and in the same units the time of one permit.
--
-- A moment is u microseconds, n nanoseconds and part Nths of one. It is later than now if
-- (u - now) x 1000 + n, with a part as one nanosecond more, is positive: rounding a large
-- difference does not change its sign.
--@each
  local permits, span, gu, gn, gpart, cu, cn, cpart, at = unpack('<dddddddd', numbers)
  local bursty, u, n, part, low, high = true, nil, 0, permits, nil, nil
  if value then
    if #value ~= 14 or sub(value, 1, 1) ~= 'h' then
      return redis.error_reply('FOREIGN ' .. KEYS[i])
    end
    local phase
    phase, low, high, part = unpack('<I1I4I4I4', value, 2)
    local nanos = high * 296 + low -- 2^32 = 4294967 x 1000 + 296
    n = nanos % 1000
    u, bursty = high * 4294967 + (nanos - n) / 1000, phase == 1
    if bursty and part == 0 then -- it counts as a bucket
      u, n, part, bursty, low = u + gu, n + gn, gpart, false, nil
      if n >= 1000 then u, n = u + 1, n - 1000 end
    end
    kept = u + span
    if (kept - now) * 1000 + n + ((bursty or part == 0) and 0 or 1) <= 0 then
      bursty, u, n, part, low = true, nil, 0, permits, nil
    end
  end

  repeat
    local cost
    cost, at = unpack('<d', numbers, at)
    if cost == 0 or cost > permits then -- changes nothing
    elseif bursty then
      if cost <= part then u, part, after = u or now, part - cost, true end
    else
      local nths, rest = cost * cpart, nil
      rest = nths % permits
      local eu, en = u + cost * cu, n + cost * cn + (nths - rest) / permits
      rest = rest + part
      if rest >= permits then rest, en = rest - permits, en + 1 end
      local up = rest > 0 and en + 1 or en
      if (eu - now) * 1000 + up <= 0 then
        n = en % 1000
        u, part, low, after = eu + (en - n) / 1000, rest, nil, true
      end
    end
  until at > #numbers

  if after then
    if not low then
      high = math.floor(u / HALF)
      low = (u - high * HALF) * 1000 + n
      local rest = low % HALF
      high, low = high * 1000 + (low - rest) / HALF, rest
    end
    after = 'h' .. pack('<I1I4I4I4', bursty and 1 or 2, low, high, part)
    expires = u + span + 2
    if bursty and part == 0 then expires = expires + gu end
  end
