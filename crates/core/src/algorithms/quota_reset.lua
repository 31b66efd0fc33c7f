-- Quota reset: the twin of quota_reset.rs. A state is the moment at which the window was opened, in
-- microseconds, and its count: see quota_reset/stored_form.rs.

local HALF, MOST = 4294967296, 9007199254740992

-- The open window, or the empty one that a request opens now.
local function seen(limit, state)
  if state and state[2] > 0 then
    local eu, en = add(state[1], 0, limit[3], limit[4])
    if later(eu, en, now, 0) then return state[1], state[2] end
  end
  return now, 0
end

twins.q = {
  -- N, denials are counted, window.
  numbers = '<dddd',

  read = function(value)
    local bytes = #value
    if bytes ~= 13 and bytes ~= 17 or string.sub(value, 1, 1) ~= 'q' then return nil end
    local low, high, used = struct.unpack(bytes == 13 and '<I4I4I4' or '<I4I4I8', value, 2)
    return {high * HALF + low, used}
  end,

  decide = function(limit, state, cost)
    local n = limit[1]
    local opened, used = seen(limit, state)
    local fits, charge = used + cost <= n, cost
    if not fits then
      if limit[2] == 0 then return false, nil end
      charge = math.min(cost, math.max(0, math.min(2 * n, MOST) - used))
    end
    if charge == 0 then return fits, nil end
    return fits, {opened, used + charge}
  end,

  refund = function(limit, state, cost)
    local opened, used = seen(limit, state)
    if used == 0 or cost == 0 then return nil end
    if cost >= used then return false end
    return {opened, used - cost}
  end,

  write = function(state, limit)
    local high = math.floor(state[1] / HALF)
    local format = state[2] < HALF and '<I4I4I4' or '<I4I4I8'
    local value = 'q' .. struct.pack(format, state[1] - high * HALF, high, state[2])
    return value, state[1] + limit[3] + 2
  end,
}
