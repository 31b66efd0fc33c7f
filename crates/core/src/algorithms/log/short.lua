-- Sliding logs in short.lua: the twin of log.rs, under limits whose span and gap are whole
-- microseconds. Numbers: N, denials are counted, span, gap.
--
-- All moments are readings of the clock. In microseconds they are high x 4294967 + (high x 296 +
-- low) / 1000, because 2^32 = 4294967 x 1000 + 296.
--@each
  local most, counted, span, gap, at = unpack('<dddd', numbers)
  local log, length, newest, low, high = value or '', 0, 0, nil, nil
  if value then
    length = (#value - 1) / 8
    if length < 1 or length % 1 > 0 or sub(value, 1, 1) ~= 'l' then
      return redis.error_reply('FOREIGN ' .. KEYS[i])
    end
    low, high = unpack('<I4I4', value, #value - 7)
    newest = high * 4294967 + (high * 296 + low) / 1000
    kept = newest + span
  end

  repeat
    local cost
    cost, at = unpack('<d', numbers, at)
    local fits, oldest = cost <= most, length - most + cost
    if fits and oldest > 0 then
      low, high = unpack('<I4I4', log, 8 * oldest - 6)
      fits = high * 4294967 + (high * 296 + low) / 1000 + span <= now
    end
    if fits and gap > 0 and length > 0 then fits = newest + gap <= now end
    if cost > 0 and (fits or counted == 1) then
      if cost > most then cost = most end
      -- Of more than N, which a process with a higher N counts, only as many go as come.
      local first, stamp = math.max(math.min(length - most, 0) + cost, 0) + 1, nil
      if newest + span <= now then first = length + 1 end -- all are gone
      if newest > now then
        stamp = sub(log, -8) -- the clock was set back
      else
        newest, high = now, math.floor(now / HALF)
        low = (now - high * HALF) * 1000
        local rest = low % HALF
        stamp = pack('<I4I4', rest, high * 1000 + (low - rest) / HALF)
      end
      while first <= length do
        low, high = unpack('<I4I4', log, 8 * first - 6)
        if high * 4294967 + (high * 296 + low) / 1000 + span > newest then break end
        first = first + 1
      end
      log = 'l' .. sub(log, 8 * first - 6) .. (cost == 1 and stamp or string.rep(stamp, cost))
      length, after = length - first + 1 + cost, true
    end
  until at > #numbers

  if after then after, expires = log, newest + math.max(span, gap) + 1 end
