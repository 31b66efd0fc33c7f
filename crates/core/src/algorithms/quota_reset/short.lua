-- Quota reset in short.lua: the twin of quota_reset.rs, under limits whose window is of whole
-- microseconds. Numbers: N, denials are counted, window.
--
-- All moments are below 2^53, and so exact, and counts go up to it. A sum above it may be rounded:
-- then it is above N as well.
--@each
  local n, counted, width, at = unpack('<ddd', numbers)
  local opened, used = now, 0
  if value then
    local bytes = #value
    if bytes ~= 13 and bytes ~= 17 or sub(value, 1, 1) ~= 'q' then
      return redis.error_reply('FOREIGN ' .. KEYS[i])
    end
    local low, high, before = unpack(bytes == 13 and '<I4I4I4' or '<I4I4I8', value, 2)
    kept = high * HALF + low + width
    if now < kept and before > 0 then opened, used = kept - width, before end
  end

  local charged = used
  repeat
    local cost
    cost, at = unpack('<d', numbers, at)
    if charged + cost <= n then
      charged = charged + cost
    elseif counted == 1 then
      charged = charged + math.min(cost, math.max(0, math.min(2 * n, 9007199254740992) - charged))
    end
  until at > #numbers

  if charged > used then
    local low = opened % HALF
    after = 'q' .. pack(charged < HALF and '<I4I4I4' or '<I4I4I8', low, (opened - low) / HALF, charged)
    expires = opened + width + 2
  end
