-- Windows: the twin of window.rs. A state is the index of the newest window in two halves of 32
-- bits, then the counts, newest first: the integers of the value, see window/stored_form.rs.

local FULL, WEIGHTED = 1, 2
local HALF, MOST, LIMB = 4294967296, 9007199254740992, 262144

local function limbs(number)
  local low = math.fmod(number, LIMB)
  local rest = (number - low) / LIMB
  local middle = math.fmod(rest, LIMB)
  return low, middle, (rest - middle) / LIMB
end

-- The product of a count up to 2^53 and a span of up to 2^62 ns, in limbs of 18 bits, lowest first.
-- No step passes 2^53.
local function product(count, u, n)
  local a, b, c = limbs(u)
  a, b, c = a * 1000 + n, b * 1000, c * 1000
  local x, y, z = limbs(count)
  local sums, carry = {a * x, a * y + b * x, a * z + b * y + c * x, b * z + c * y, c * z}, 0
  for place = 1, 5 do
    local whole = sums[place] + carry
    sums[place] = math.fmod(whole, LIMB)
    carry = (whole - sums[place]) / LIMB
  end
  sums[6] = carry
  return sums
end

-- Whether a x span < b x width, exactly; floats decide unless it is close.
local function below(a, u, n, b, wu, wn)
  if n == 0 and wn == 0 then
    local left, right = a * u, b * wu
    if left < MOST and right < MOST then return left < right end
  end
  local left, right = a * (u * 1000 + n), b * (wu * 1000 + wn)
  if left < right * 0.999999 then return true end
  if left > right * 1.000001 then return false end
  left, right = product(a, u, n), product(b, wu, wn)
  for place = 6, 1, -1 do
    if left[place] ~= right[place] then return left[place] < right[place] end
  end
  return false
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
  local index = state and state[2] * HALF + state[1] or 0
  if current < index then return state[1], state[2], 0, wu, wn end
  local high = math.floor(current / HALF)
  local left, rest = sub(eu, en, now, 0)
  return current - high * HALF, high, current - index, left, rest
end

twins.w = {
  -- N, m, edge, denials are counted, phase, width.
  numbers = '<dddddddd',

  read = function(value, limit)
    local bytes = (#value - 9) / (limit[2] + 1) -- of each count
    if bytes ~= 4 and bytes ~= 8 or string.sub(value, 1, 1) ~= 'w' then return nil end
    return {struct.unpack('<I4I4' .. string.rep('I' .. bytes, limit[2] + 1), value, 2)}
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
      charge = math.min(cost, math.max(0, math.min(2 * n, MOST) - sum))
    end
    if charge == 0 then return fits, nil end
    counts[3] = counts[3] + charge
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
    local bytes = 4
    for at = 3, m + 3 do
      if state[at] >= HALF then bytes = 8 end
    end
    local numbers = '<I4I4' .. string.rep('I' .. bytes, m + 1)
    local value = 'w' .. struct.pack(numbers, unpack(state, 1, m + 3))
    local seen = m
    if limit[3] ~= 0 then seen = m + 1 end
    local newest = 0
    while newest < seen and state[3 + newest] == 0 do newest = newest + 1 end
    local u, n = times(state[2] * HALF + state[1], wu, wn)
    u = add(u, n, limit[5], limit[6])
    local mu = times(math.max(0, seen - newest - 1), wu, wn)
    return value, u + mu + 2
  end,
}
