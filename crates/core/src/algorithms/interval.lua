-- Interval buckets: the twin of interval.rs. A state is what is missing, and the next stroke in two
-- halves of 32 bits: see interval/stored_form.rs.

-- The state as now finds it: what is missing, and the next stroke.
local function refilled(limit, state)
  local eu, en = limit[6], limit[7]
  if state then
    local missing = state[1]
    local nu, nn = moment(state[2], state[3])
    if missing > 0 then
      if later(nu, nn, now, 0) then return missing, nu, nn end
      local du, dn = sub(now, 0, nu, nn)
      local strokes = steps(du, dn, eu, en) + 1
      missing = missing - limit[2] * strokes
      if missing > 0 then
        local tu, tn = times(strokes, eu, en)
        return missing, add(nu, nn, tu, tn)
      end
    end
  end
  if limit[3] == 1 then return 0, add(now, 0, eu, en) end
  local pu, pn = limit[4], limit[5]
  if later(pu, pn, now, 0) then return 0, pu, pn end
  local au, an = sub(now, 0, pu, pn)
  local tu, tn = times(steps(au, an, eu, en) + 1, eu, en)
  return 0, add(pu, pn, tu, tn)
end

twins.i = {
  -- M, R, strokes begin with the first take, phase, interval.
  numbers = '<ddddddd',

  -- More than M, or an end, is of other numbers: left to the caller.
  read = function(value, limit)
    local bytes = #value
    if bytes ~= 13 and bytes ~= 17 or string.sub(value, 1, 1) ~= 'i' then return nil end
    local missing, low, high = struct.unpack(bytes == 13 and '<I4I4I4' or '<I8I4I4', value, 2)
    if missing > limit[1] then return nil end
    return {missing, low, high}
  end,

  decide = function(limit, state, cost)
    local missing, nu, nn = refilled(limit, state)
    if missing + cost > limit[1] then return false, nil end
    if cost == 0 then return true, nil end
    return true, {missing + cost, halves(nu, nn)}
  end,

  refund = function(limit, state, cost)
    if not state then return nil end
    local missing, nu, nn = refilled(limit, state)
    if missing <= cost then return false end
    return {missing - cost, halves(nu, nn)}
  end,

  write = function(state, limit)
    local u, n = moment(state[2], state[3])
    local strokes = math.ceil(state[1] / limit[2]) - 1
    local tu = times(strokes, limit[6], limit[7])
    local numbers = state[1] < 4294967296 and '<I4I4I4' or '<I8I4I4'
    return 'i' .. struct.pack(numbers, unpack(state, 1, 3)), u + tu + 2
  end,
}
