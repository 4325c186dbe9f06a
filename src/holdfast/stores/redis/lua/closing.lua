-- The one closing transition, for scripts that may make it.

local function closing(why)
  local got = redis.call('HGETALL', base)
  local doomed, record, subscriptions = {base, base .. ':f', base .. ':k', base .. ':o', base .. ':q'}, {}, {}
  for index = 1, #got, 2 do
    local kind, name = string.match(got[index], '^([cu]):(.*)$')
    if kind == 'c' then
      doomed[#doomed + 1] = base .. ':e:' .. name
    elseif kind == 'u' then
      subscriptions[#subscriptions + 1] = name
    else
      record[got[index]] = got[index + 1]
    end
  end
  local owners = {}
  for owner in pairs(S.ow) do
    owners[#owners + 1] = owner
    publish(owner, 'closed', '')
  end
  local last = {why, record.rec, record.lv or '', record['in'] or '', op, owners, subscriptions}
  redis.call('UNLINK', unpack(doomed))
  redis.call('SET', base .. ':x', cmsgpack.pack({last = last, at = now}), 'PX', 600000)
  return {'closed', {}, unpack(last)}
end

-- The closing that this very command made, when it is sent again.
local function closed_by_me()
  local packed = again and redis.call('GET', base .. ':x')
  local left = packed and cmsgpack.unpack(packed)
  if left and left.last[5] == op then return {'closed', {}, unpack(left.last)} end
end
