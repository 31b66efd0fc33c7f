-- Sliding logs: the twin of log.rs. A state is the value itself: moments of 8 bytes, oldest first.

local function count(value)
  return (#value - 1) / 8
end

-- The moment at a place, from 1, and a span.
local function after(value, place, u, n)
  local low, high = struct.unpack('<I4I4', value, 8 * place - 6)
  local mu, mn = moment(low, high)
  return add(mu, mn, u, n)
end

local function push(limit, value, cost)
  local low, high = halves(now, 0)
  cost = math.min(cost, limit[1])
  local kept = ''
  if value then
    local length, first = count(value), 1
    local places = math.max(limit[1], length) - cost -- a process with a higher N counts them all
    local nu, nn = after(value, length, 0, 0)
    if later(nu, nn, now, 0) then low, high = halves(nu, nn) end
    first = math.max(1, length - places + 1)
    while first <= length do
      local u, n = after(value, first, limit[3], limit[4])
      if later(u, n, now, 0) then break end
      first = first + 1
    end
    kept = string.sub(value, 8 * first - 6)
  end
  return 'l' .. kept .. string.rep(struct.pack('<I4I4', low, high), cost)
end

twins.l = {
  -- N, denials are counted, span, gap.
  numbers = '<dddddd',

  read = function(value)
    if #value % 8 ~= 1 or #value == 1 or string.sub(value, 1, 1) ~= 'l' then return nil end
    return value
  end,

  decide = function(limit, value, cost)
    if cost == 0 then return true, nil end
    local fits = cost <= limit[1]
    if not fits and limit[2] == 0 then return false, nil end
    if value and fits then
      local length = count(value)
      local oldest = length - (limit[1] - cost)
      if oldest > 0 then
        local u, n = after(value, oldest, limit[3], limit[4])
        fits = not later(u, n, now, 0)
      end
      if fits and (limit[5] > 0 or limit[6] > 0) then
        local u, n = after(value, length, limit[5], limit[6])
        fits = not later(u, n, now, 0)
      end
    end
    if fits or limit[2] == 1 then return fits, push(limit, value, cost) end
    return false, nil
  end,

  -- The newest moments that still count.
  refund = function(limit, value, cost)
    if not value then return nil end
    local length = count(value)
    local kept = length
    while kept > 0 and length - kept < cost do
      local u, n = after(value, kept, limit[3], limit[4])
      if not later(u, n, now, 0) then break end
      kept = kept - 1
    end
    if kept == 0 then return false end
    if kept == length then return nil end
    return string.sub(value, 1, 8 * kept + 1)
  end,

  write = function(value, limit)
    local length = count(value)
    local u = after(value, length, limit[3], limit[4])
    local gap = after(value, length, limit[5], limit[6])
    return value, math.max(u, gap) + 1
  end,
}
