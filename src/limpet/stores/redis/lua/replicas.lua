-- Replicas, in the shared slot: leases, dead replicas, where each has work, and the messages between them.
--
--   :lease   replica -> its last incarnation and the command that began it   :incarnations  the last number given out
--   :rep     <replica>.<incarnation> by the end of its lease; 0: declared dead
--   :seen    since when each has renewed without a gap, when last, and the length of its lease
--   :own:<owner>  the sessions in which it has, or had, work
--   :took:<name>  the command that took a request back from an inbox, for a minute
--   :in:<replica> requests that were put to it   :inb:<replica>  their bytes   :news  messages to all replicas (a Redis stream)
--   :notices replica -> the end of its notice's time, and the notice
--
-- The rules of leases are in stores/base/replicas.py, and their proof in engine/lease.py. Declaring and renewing happen in this slot,
-- so one of them is first.
--
-- A replica is registered in :own before its first work in a session, and removed after its last work there was found ended.
-- So other replicas find all its work, whenever it dies. An entry too many only costs a search; a missing one would lose a call.
--
-- Sent again: lease finds the command that began the incarnation; forward, announce and secret find the name; took finds
-- its own mark; the others set or remove the same values again.

--## lease: shared !allow-oom
-- Take or renew a lease. A replica that was declared dead, or is new, begins a new incarnation. None begins where a release of
-- a later format has begun, because each would not see the data of the other; replicas that have a lease continue to
-- their end.
local name, incarnation, life = ARGV[5], ARGV[6], tonumber(ARGV[7])
local known = redis.call('HGET', g .. ':lease', name)
local last, by = string.match(known or '', '^(%d+) (.*)$')
local owner = name .. '.' .. incarnation
local ends = tonumber(redis.call('ZSCORE', g .. ':rep', owner) or 0)
local format, namespace = string.match(g, '^lp:(%d+):([^:]*):')
local newest = 'lp:0:' .. namespace .. ':{*}:format'
if again and by == op then
  owner, incarnation = name .. '.' .. last, last
elseif ends == 0 then
  local found = redis.call('GET', newest)
  if found and tonumber(found) > tonumber(format) then return {'later', {}, tonumber(found)} end
  incarnation = redis.call('INCR', g .. ':incarnations')
  owner = name .. '.' .. incarnation
  redis.call('HSET', g .. ':lease', name, incarnation .. ' ' .. op)
end
redis.call('ZADD', g .. ':rep', now + life, owner)
local since, renewed = seen(owner)
if not since or math.abs(now - renewed) > life / 2 then since = now end
redis.call('HSET', g .. ':seen', owner, since .. ' ' .. now .. ' ' .. life)
live(g .. ':seen', 86400000)
-- A replica that continues beside a later release does not change that release's mark.
if tonumber(redis.call('GET', newest) or 0) < tonumber(format) then redis.call('SET', newest, format) end
live(newest, 30 * 86400000)
live(g .. ':rep', 86400000)
live(g .. ':lease', 86400000)
live(g .. ':incarnations', 30 * 86400000)
if redis.call('EXISTS', g .. ':own:' .. owner) == 1 then live(g .. ':own:' .. owner, 86400000) end
-- Another format in use: a later one, or an earlier one whose replicas have a lease. Sessions of one are unknown to the other.
local other = tonumber(redis.call('GET', newest))
for earlier = tonumber(format) - 1, 1, -1 do
  if other ~= tonumber(format) then break end
  local leases = 'lp:' .. earlier .. ':' .. namespace .. ':{*}:rep'
  if redis.call('ZCOUNT', leases, now, '+inf') > 0 then other = earlier end
end
return {'ok', {}, tonumber(incarnation), other, now}

--## release: shared !allow-oom
-- The replica stops. If it still owns work, other replicas may end it from now on. Its inbox stays until it expires:
-- a sender takes back a request that the replica has not taken, and knows that it never ran.
local name, owner = ARGV[5], ARGV[6]
if redis.call('EXISTS', g .. ':own:' .. owner) == 1 then
  redis.call('ZADD', g .. ':rep', 'XX', 0, owner)
else
  redis.call('ZREM', g .. ':rep', owner)
  redis.call('HDEL', g .. ':seen', owner)
  redis.call('HDEL', g .. ':lease', name)
end
return {'ok'}

--## replicas: shared !no-writes
return {'ok', {}, now, redis.call('ZRANGEBYSCORE', g .. ':rep', '(' .. now, '+inf', 'WITHSCORES')}

--## register: shared
-- Sent before a replica's first work in a session. An incarnation that was declared dead is refused: other replicas may have
-- ended all its work already, and would not search again.
local ends = tonumber(redis.call('ZSCORE', g .. ':rep', ARGV[5]) or 0)
if ends == 0 and not string.match(ARGV[5], '%.0$') then return {'dead'} end
redis.call('SADD', g .. ':own:' .. ARGV[5], ARGV[6])
live(g .. ':own:' .. ARGV[5], 86400000)
return {'ok'}

--## dead: shared !allow-oom
-- Declare replicas dead whose lease has ended, if the caller has renewed its own for one whole lease. A lease that was renewed
-- in the future has ended too: the clock was set back, and its owner has not renewed since then. Reply the dead replicas with
-- the sessions in which they had work, and the caller's own; a dead replica without any is forgotten.
local since, renewed, life = seen(me)
if since and now - since >= life and math.abs(now - renewed) <= life / 2 then
  for _, owner in ipairs(redis.call('ZRANGEBYSCORE', g .. ':rep', '(0', now)) do redis.call('ZADD', g .. ':rep', 0, owner) end
  for _, owner in ipairs(redis.call('ZRANGEBYSCORE', g .. ':rep', now + life / 2, '+inf')) do
    local _, last = seen(owner)
    if last and last - now > life / 2 then redis.call('ZADD', g .. ':rep', 0, owner) end
  end
end
local found = {}
for _, owner in ipairs(redis.call('ZRANGEBYSCORE', g .. ':rep', '-inf', 0)) do
  local sessions = redis.call('SRANDMEMBER', g .. ':own:' .. owner, ARGV[5])
  if #sessions == 0 then
    local name, incarnation = string.match(owner, '^(.*)%.(%d+)$')
    redis.call('ZREM', g .. ':rep', owner)
    redis.call('HDEL', g .. ':seen', owner)
    if string.match(redis.call('HGET', g .. ':lease', name) or '', '^(%d+)') == incarnation then
      redis.call('HDEL', g .. ':lease', name)
    end
  else
    found[#found + 1] = {owner, sessions}
  end
end
return {'ok', {}, found, redis.call('SRANDMEMBER', g .. ':own:' .. me, ARGV[5])}

--## forward: shared
local name, id, payload, life = ARGV[5], ARGV[6], ARGV[7], tonumber(ARGV[8])
local incarnation = string.match(redis.call('HGET', g .. ':lease', name) or '', '^(%d+)')
local ends = incarnation and redis.call('ZSCORE', g .. ':rep', name .. '.' .. incarnation)
if not ends or tonumber(ends) <= now then return {'none'} end
local inbox, bytes = g .. ':in:' .. name, g .. ':inb:' .. name
if redis.call('HEXISTS', inbox, id) == 0 then
  local count = redis.call('HLEN', inbox)
  local size = count == 0 and 0 or tonumber(redis.call('GET', bytes) or 0)
  if count >= tonumber(ARGV[9]) or (count > 0 and size + #payload > tonumber(ARGV[10])) then return {'full'} end
  redis.call('HSET', inbox, id, payload)
  redis.call('SET', bytes, size + #payload, 'KEEPTTL')
end
-- The longest time of its messages; GT alone would leave a new inbox without any.
for _, key in ipairs({inbox, bytes}) do
  redis.call('PEXPIRE', key, life, 'NX')
  redis.call('PEXPIRE', key, life, 'GT')
end
publish('bell:' .. name, 'forward', '', id)
return {'ok'}

--## inbox: shared !no-writes
return {'ok', {}, redis.call('HGETALL', g .. ':in:' .. ARGV[5])}

--## took: shared !allow-oom
local inbox, bytes = g .. ':in:' .. ARGV[5], g .. ':inb:' .. ARGV[5]
local size = redis.call('HSTRLEN', inbox, ARGV[6])
local was_there = redis.call('HDEL', inbox, ARGV[6])
if redis.call('EXISTS', inbox) == 0 then
  redis.call('DEL', bytes)
elseif redis.call('EXISTS', bytes) == 1 then
  redis.call('DECRBY', bytes, size)
end
-- Only a sender that takes its request back uses the answer: sent again, it is the same.
if ARGV[7] == '1' then
  local mark = g .. ':took:' .. ARGV[6]
  if was_there == 1 then redis.call('SET', mark, op, 'PX', 60000) end
  if again and redis.call('GET', mark) == op then was_there = 1 end
end
return {'ok', {}, was_there}

--## announce: shared
local key, id, event = g .. ':news', ARGV[5], ARGV[6]
for _, entry in ipairs(redis.call('XREVRANGE', key, '+', '-', 'COUNT', 100)) do
  if entry[2][2] == id then return {'ok'} end
end
redis.call('XADD', key, 'MAXLEN', '~', NEWS, '*', 'i', id, 'd', event)
redis.call('PEXPIRE', key, SLACK)
publish('bell', 'news', '', '')
return {'ok'}

--## news: shared !no-writes
local key, after = g .. ':news', ARGV[5]
if after == '' then
  local last = redis.call('XREVRANGE', key, '+', '-', 'COUNT', 1)[1]
  return {'ok', {}, last and last[1] or '0-0', {}}
end
-- Without the event of the cursor, others after it may be gone too. A caller that began before the first event has none.
local missed
if after == '0-0' then
  missed = redis.call('XLEN', key) >= NEWS
else
  missed = redis.call('EXISTS', key) == 1 and #redis.call('XRANGE', key, after, after) == 0
end
local events = {}
for _, entry in ipairs(redis.call('XRANGE', key, '(' .. after, '+', 'COUNT', 100)) do
  after = entry[1]
  events[#events + 1] = entry[2][4]
end
if missed and #events == 0 then after = redis.call('XREVRANGE', key, '+', '-', 'COUNT', 1)[1][1] end
return {'ok', {}, after, events, missed and 1 or 0}

--## secret: shared
local key, life = g .. ':secret:' .. ARGV[5], tonumber(ARGV[7])
local ends = tonumber(redis.call('HGET', key, 'until') or 0)
if ends <= now then redis.call('HSET', key, 'value', ARGV[6]) end
redis.call('HSET', key, 'until', now + life)
redis.call('PEXPIRE', key, life)
return {'ok', {}, redis.call('HGET', key, 'value')}

--## notices: shared
-- Replace a replica's notice, unless it is empty, and reply the valid notices of the others.
local key, name, notice, life = g .. ':notices', ARGV[5], ARGV[6], tonumber(ARGV[7])
if notice ~= '' then
  redis.call('HSET', key, name, string.format('%.0f ', now + life) .. notice)
  redis.call('PEXPIRE', key, life)
end
local found, flat = {}, redis.call('HGETALL', key)
for index = 1, #flat, 2 do
  local space = string.find(flat[index + 1], ' ', 1, true)
  if tonumber(string.sub(flat[index + 1], 1, space - 1)) <= now then
    redis.call('HDEL', key, flat[index])
  elseif flat[index] ~= name then
    found[#found + 1] = string.sub(flat[index + 1], space + 1)
  end
end
return {'ok', {}, found}
