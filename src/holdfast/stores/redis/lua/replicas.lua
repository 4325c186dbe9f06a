--## lease: shared !allow-oom
-- Take or renew a lease. One that has run out goes on too, unless its owner was declared dead (`dead` sets its end to
-- 0): both happen in this slot, so one of them is first, and decides. One that was declared dead or never was begins as
-- a new incarnation. None begins where a release of a later format has begun: what it writes is not seen here. Those who
-- have a lease may finish.
local name, incarnation, life = ARGV[5], ARGV[6], tonumber(ARGV[7])
local known = redis.call('HGET', g .. ':lease', name)
local last, by = string.match(known or '', '^(%d+) (.*)$')
local owner = name .. '.' .. incarnation
local ends = tonumber(redis.call('ZSCORE', g .. ':rep', owner) or 0)
local format, namespace = string.match(g, '^hf:(%d+):([^:]*):')
local newest = 'hf:0:' .. namespace .. ':{*}:format'
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
if not since or now - renewed > life / 2 then since = now end
redis.call('HSET', g .. ':seen', owner, since .. ' ' .. now .. ' ' .. life)
live(g .. ':seen', 86400000)
-- Whoever goes on after a later release has come leaves its mark alone.
if tonumber(redis.call('GET', newest) or 0) < tonumber(format) then redis.call('SET', newest, format) end
live(newest, 30 * 86400000)
live(g .. ':rep', 86400000)
live(g .. ':lease', 86400000)
live(g .. ':incarnations', 30 * 86400000)
if redis.call('EXISTS', g .. ':own:' .. owner) == 1 then live(g .. ':own:' .. owner, 86400000) end
return {'ok', {}, tonumber(incarnation)}

--## release: shared !allow-oom
-- The replica has gone in order: what it still owns, if anything, is an orphan from now on.
local name, owner = ARGV[5], ARGV[6]
if redis.call('EXISTS', g .. ':own:' .. owner) == 1 then
  redis.call('ZADD', g .. ':rep', 'XX', 0, owner)
else
  redis.call('ZREM', g .. ':rep', owner)
  redis.call('HDEL', g .. ':seen', owner)
  redis.call('HDEL', g .. ':lease', name)
end
redis.call('DEL', g .. ':in:' .. name)
return {'ok'}

--## replicas: shared !no-writes
return {'ok', {}, redis.call('ZRANGEBYSCORE', g .. ':rep', '(' .. now, '+inf')}

--## seat: shared
-- Written before a replica's first work in a session: a crash in between leaves nothing that nobody looks for.
-- An incarnation that was declared dead gets no seat: those who look after the dead may have forgotten it already.
local ends = tonumber(redis.call('ZSCORE', g .. ':rep', ARGV[5]) or 0)
if ends == 0 and not string.match(ARGV[5], '%.0$') then return {'dead'} end
redis.call('SADD', g .. ':own:' .. ARGV[5], ARGV[6])
live(g .. ':own:' .. ARGV[5], 86400000)
return {'ok'}

--## unseated: shared !allow-oom
redis.call('SREM', g .. ':own:' .. ARGV[5], ARGV[6])
return {'ok'}

--## dead: shared !allow-oom
-- Declares owners dead whose lease has ended, if the caller has seen this slot for one whole lease: it has renewed all
-- that time, so all who live could. Returns the dead with the sessions they had work in; one without any is forgotten.
local since, renewed, life = seen(me)
if since and now - since >= life and now - renewed <= life / 2 then
  for _, owner in ipairs(redis.call('ZRANGEBYSCORE', g .. ':rep', '(0', now)) do redis.call('ZADD', g .. ':rep', 0, owner) end
end
local found = {}
for _, owner in ipairs(redis.call('ZRANGEBYSCORE', g .. ':rep', '-inf', 0)) do
  local sessions = redis.call('SRANDMEMBER', g .. ':own:' .. owner, 100)
  if #sessions == 0 then
    local name, incarnation = string.match(owner, '^(.*)%.(%d+)$')
    redis.call('ZREM', g .. ':rep', owner)
    redis.call('HDEL', g .. ':seen', owner)
    if string.match(redis.call('HGET', g .. ':lease', name) or '', '^(%d+)') == incarnation then
      redis.call('HDEL', g .. ':lease', name)
      redis.call('DEL', g .. ':in:' .. name)
    end
  else
    found[#found + 1] = {owner, sessions}
  end
end
return {'ok', {}, found, redis.call('SRANDMEMBER', g .. ':own:' .. me, 100)}

--## forward: shared
local name, id, payload, life = ARGV[5], ARGV[6], ARGV[7], tonumber(ARGV[8])
local incarnation = string.match(redis.call('HGET', g .. ':lease', name) or '', '^(%d+)')
local ends = incarnation and redis.call('ZSCORE', g .. ':rep', name .. '.' .. incarnation)
if not ends or tonumber(ends) <= now then return {'none'} end
local inbox = g .. ':in:' .. name
if redis.call('HEXISTS', inbox, id) == 0 then
  if redis.call('HLEN', inbox) >= tonumber(ARGV[9]) then return {'full'} end
  redis.call('HSET', inbox, id, payload)
end
redis.call('PEXPIRE', inbox, life)
publish('bell:' .. name, 'forward', '', id)
return {'ok'}

--## inbox: shared !no-writes
return {'ok', {}, redis.call('HGETALL', g .. ':in:' .. ARGV[5])}

--## took: shared !allow-oom
redis.call('HDEL', g .. ':in:' .. ARGV[5], ARGV[6])
return {'ok'}

--## announce: shared
local key, id, event = g .. ':news', ARGV[5], ARGV[6]
for _, entry in ipairs(redis.call('XREVRANGE', key, '+', '-', 'COUNT', 100)) do
  if entry[2][2] == id then return {'ok'} end
end
redis.call('XADD', key, 'MAXLEN', '~', 1000, '*', 'i', id, 'd', event)
redis.call('PEXPIRE', key, SLACK)
publish('bell', 'news', '', '')
return {'ok'}

--## news: shared !no-writes
local key, after = g .. ':news', ARGV[5]
if after == '' then
  local last = redis.call('XREVRANGE', key, '+', '-', 'COUNT', 1)[1]
  return {'ok', {}, last and last[1] or '0-0', {}}
end
local events = {}
for _, entry in ipairs(redis.call('XRANGE', key, '(' .. after, '+', 'COUNT', 100)) do
  after = entry[1]
  events[#events + 1] = entry[2][4]
end
return {'ok', {}, after, events}

--## secret: shared
local key, life = g .. ':secret:' .. ARGV[5], tonumber(ARGV[7])
local ends = tonumber(redis.call('HGET', key, 'until') or 0)
if ends <= now then redis.call('HSET', key, 'value', ARGV[6]) end
redis.call('HSET', key, 'until', now + life)
redis.call('PEXPIRE', key, life)
return {'ok', {}, redis.call('HGET', key, 'value')}
