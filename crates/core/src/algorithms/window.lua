-- Windows: the twin of window.rs. A state is the index of the newest window in two halves of 32
-- bits, then the counts, newest first: the integers of the value, see window/stored_form.rs.

local FULL, WEIGHTED = 1, 2
local MOST = 4294967295
local EXACT = 9007199254740992

-- The product of a count below 2^32 and a span of up to 2^62 ns: three limbs of 21 bits,
-- highest first. No step passes 2^53.
local function product(count, u, n)
  local LIMB = 2097152
  local high = math.floor(u / (LIMB * LIMB))
  local rest = u - high * LIMB * LIMB
  local middle = math.floor(rest / LIMB)
  local low = (rest - middle * LIMB) * 1000 + n
  local carry = math.floor(low / LIMB)
  low, middle = low - carry * LIMB, middle * 1000 + carry
  carry = math.floor(middle / LIMB)
  middle, high = middle - carry * LIMB, high * 1000 + carry
  low, middle, high = count * low, count * middle, count * high
  carry = math.floor(low / LIMB)
  low, middle = low - carry * LIMB, middle + carry
  carry = math.floor(middle / LIMB)
  return high + carry, middle - carry * LIMB, low
end

-- Whether a x span < b x width, exactly; floats decide unless it is close.
local function below(a, u, n, b, wu, wn)
  if n == 0 and wn == 0 then
    local left, right = a * u, b * wu
    if left < EXACT and right < EXACT then return left < right end
  end
  local left, right = a * (u * 1000 + n), b * (wu * 1000 + wn)
  if left < right * 0.999999 then return true end
  if left > right * 1.000001 then return false end
  local h, m, l = product(a, u, n)
  local wh, wm, wl = product(b, wu, wn)
  if h ~= wh then return h < wh end
  if m ~= wm then return m < wm end
  return l < wl
end

-- What now sees of a state: halves of the index, how many windows on, and what is left of
-- the window.
local function sight(limit, state)
  local pu, pn, wu, wn = limit[5], limit[6], limit[7], limit[8]
  local current, eu, en = 0, pu, pn
  if not later(pu, pn, now, 0) then
    local au, an = sub(now, 0, pu, pn)
    local count = steps(au, an, wu, wn) + 1
    local tu, tn = times(count, wu, wn)
    current, eu, en = count, add(pu, pn, tu, tn)
  end
  local index = state and state[2] * 4294967296 + state[1] or 0
  if current < index then return state[1], state[2], 0, wu, wn end
  local high = math.floor(current / 4294967296)
  local left, rest = sub(eu, en, now, 0)
  return current - high * 4294967296, high, current - index, left, rest
end

twins.w = {
  -- N, m, edge, denials are counted, phase, width.
  numbers = '<dddddddd',

  read = function(value, limit)
    local m = limit[2]
    if #value ~= 13 + 4 * m or string.sub(value, 1, 1) ~= 'w' then return nil end
    return {struct.unpack('<I4I4' .. string.rep('I4', m + 1), value, 2)}
  end,

  decide = function(limit, state, cost)
    local n, m, edge = limit[1], limit[2], limit[3]
    local low, high, shift, lu, ln = sight(limit, state)
    local counts, sum = {low, high}, 0
    for back = 0, m do
      local count = state and back >= shift and state[3 + back - shift] or 0
      counts[3 + back] = count
      if back < m then sum = sum + count end
    end
    local room, oldest = n - sum - cost, counts[3 + m]
    local fits = room >= 0
    if fits and edge == FULL then
      fits = oldest <= room
    elseif fits and edge == WEIGHTED and oldest > room then
      fits = below(oldest, lu, ln, room + 1, limit[7], limit[8])
    end
    local charge = 0
    if fits then
      charge = cost
    elseif limit[4] == 1 then
      charge = math.min(cost, math.max(0, 2 * n - sum), MOST - counts[3])
    end
    if charge == 0 then return fits, nil end
    counts[3] = math.min(counts[3] + charge, MOST)
    return fits, counts
  end,

  -- From the newest count first.
  refund = function(limit, state, cost)
    if not state then return nil end
    local _, _, shift = sight(limit, state)
    local seen = limit[2]
    if limit[3] ~= 0 then seen = seen + 1 end
    local counts, rest, sum = {}, cost, 0
    for at = 1, limit[2] + 3 do counts[at] = state[at] end
    for back = 0, seen - 1 do
      local given = back < seen - shift and math.min(rest, counts[3 + back]) or 0
      counts[3 + back] = counts[3 + back] - given
      rest = rest - given
      sum = sum + counts[3 + back]
    end
    if sum == 0 then return false end
    if rest == cost then return nil end
    return counts
  end,

  write = function(state, limit)
    local m, wu, wn = limit[2], limit[7], limit[8]
    local value = 'w' .. struct.pack('<I4I4' .. string.rep('I4', m + 1), unpack(state, 1, m + 3))
    local seen = m
    if limit[3] ~= 0 then seen = m + 1 end
    local newest = 0
    while newest < seen and state[3 + newest] == 0 do newest = newest + 1 end
    local u, n = times(state[2] * 4294967296 + state[1], wu, wn)
    u = add(u, n, limit[5], limit[6])
    local mu = times(math.max(0, seen - newest - 1), wu, wn)
    return value, u + mu + 2
  end,
}
