-- The shared slot (shared.lua): the number of sessions and when each is examined next, log bytes, allowances for kept
-- data, subscriptions, areas and tasks.
--
-- Sweeping: :due has, for each session, the time at which a replica examines it next. `due` takes the sessions whose time has
-- come and sets it two seconds ahead, so that other replicas leave them alone. The number it sets has a random fraction, the
-- mark of this sweep. After the replica has examined a session, `rehint` sets the next time, but only if the mark is
-- still there. `hint`, sent by a replica that has changed the session, removes the mark (it rounds the number down), so the
-- time of `hint` stays. If the replica that sweeps dies, the session is due again after two seconds.
--
-- Sent again: reserve and reserve_area find the entry; size, linger, grant and hint compute the same numbers again;
-- due finds the sessions marked, and they are examined two seconds later; lower and swap_task name a count or a version,
-- which does not match the second time.

--## prove: shared
-- A replica that has, or had, a lease is ready only while the lease runs.
local ends = tonumber(redis.call('ZSCORE', g .. ':rep', me) or 0)
if ends <= now and not string.match(me, '%.0$') then return {'dead'} end
redis.call('SET', g .. ':proof', now, 'PX', 60000)
return {'ok'}

--## reserve: shared
-- Take a place for a new session: 'ok', 'full', or 'evict' if one of the principal's sessions must be closed first.
local key, principal, hint, most, own_most, evict, life = ARGV[5], ARGV[6], tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9]), ARGV[10] == '1', tonumber(ARGV[11])
if redis.call('ZSCORE', g .. ':due', key) then return {'ok'} end
local own = g .. ':p:' .. principal
local full = redis.call('ZCARD', g .. ':due') >= most
if full or (evict and redis.call('ZCARD', own) >= own_most) then return {evict and 'evict' or 'full'} end
redis.call('ZADD', g .. ':due', now + hint, key)
redis.call('ZADD', own, now, key)
redis.call('ZADD', g .. ':keys', 0, key)
live(g .. ':keys', life + SLACK)
redis.call('HSET', g .. ':of', key, principal)
live(g .. ':of', life + SLACK)
redis.call('SADD', g .. ':own:' .. me, key)
live(g .. ':own:' .. me, 86400000)
live(g .. ':due', life + SLACK)
live(own, life + SLACK)
return {'ok', 1}

--## forget: shared !allow-oom
-- A session is gone. ARGV: key, principal, listener time or 0, number of owners, owners, subscriptions.
local key, principal, unreported, owners = ARGV[5], ARGV[6], tonumber(ARGV[7]), tonumber(ARGV[8])
redis.call('ZREM', g .. ':due', key)
redis.call('ZREM', g .. ':keys', key)
redis.call('SREM', g .. ':away', key)
redis.call('ZREM', g .. ':p:' .. (redis.call('HGET', g .. ':of', key) or principal), key)
resize(key, 0, 0)
disallow(key)
redis.call('HDEL', g .. ':of', key)
for index = 9, 8 + owners do redis.call('SREM', g .. ':own:' .. ARGV[index], key) end
for index = 9 + owners, #ARGV do redis.call('SREM', g .. ':sub:' .. ARGV[index], key) end
if unreported > 0 then
  redis.call('ZADD', g .. ':told', now + unreported, key)
  live(g .. ':told', 600000 + SLACK)
end
return {'ok'}

--## linger: shared !allow-oom
-- Streams of a closed session stay for their readers: so many bytes. Reply the sessions whose streams must be deleted
-- now, the oldest first, because all together have more than ARGV[8] bytes.
local key, size, life, most = ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
local function leave(name)
  local known = tonumber(redis.call('HGET', g .. ':lb', name) or 0)
  redis.call('ZREM', g .. ':ling', name)
  redis.call('HDEL', g .. ':lb', name)
  -- Not -known: Lua would write 0 as -0, which Redis does not accept as a number.
  return redis.call('HINCRBY', g .. ':lb', '', 0 - known)
end
for _, name in ipairs(redis.call('ZRANGEBYSCORE', g .. ':ling', '-inf', now, 'LIMIT', 0, 1000)) do leave(name) end
leave(key)
redis.call('ZADD', g .. ':ling', now + life, key)
redis.call('HSET', g .. ':lb', key, size)
local total, gone = redis.call('HINCRBY', g .. ':lb', '', size), {}
while total > most do
  local oldest = redis.call('ZRANGE', g .. ':ling', 0, 0)[1]
  if not oldest then break end
  gone[#gone + 1] = oldest
  total = leave(oldest)
end
redis.call('PEXPIRE', g .. ':ling', life)
redis.call('PEXPIRE', g .. ':lb', life)
return {'ok', {}, gone}

--## hint: shared !allow-oom
-- Examine a session at this time, if that is earlier. Rounding down removes the mark of a replica that examines it now:
-- then that replica does not write its own next time.
local key, ends = ARGV[5], tonumber(ARGV[6])
local known = tonumber(redis.call('ZSCORE', g .. ':due', key) or 'nan')
if known == known and (ends < known or known % 1 ~= 0) then
  redis.call('ZADD', g .. ':due', math.floor(math.min(known, ends)), key)
end
return {'ok'}

--## due: shared !allow-oom
-- Take the sessions that are due; other replicas do not examine them for two seconds. Formatted, because Lua's own
-- text of such a number has too few digits for the mark.
local mark = string.format('%.3f', now + 2000 + tonumber(ARGV[6]))
local keys = redis.call('ZRANGEBYSCORE', g .. ':due', '-inf', now, 'LIMIT', 0, ARGV[5])
for _, key in ipairs(keys) do redis.call('ZADD', g .. ':due', mark, key) end
return {'ok', {}, mark, keys}

--## rehint: shared !allow-oom
-- Set the time at which the session is examined next, unless the mark of `due` is gone.
if tonumber(redis.call('ZSCORE', g .. ':due', ARGV[5]) or 0) == tonumber(ARGV[6]) then
  redis.call('ZADD', g .. ':due', 'XX', math.ceil(tonumber(ARGV[7])), ARGV[5])
  live(g .. ':due', tonumber(ARGV[7]) - now + SLACK)
  note_away(ARGV[5], ARGV[8])
end
return {'ok'}

--## compare: shared !allow-oom
-- Correct the hints of a session, which was just read. ARGV: key, hint, away, log bytes, oldest finished stream, step of log bytes, number
-- of owners, owners, subscriptions. An owner without a lease is dead; a session that is missing in its list would not be searched for its work.
local key, ends, bytes, owners = ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[8]), tonumber(ARGV[11])
local known = tonumber(redis.call('ZSCORE', g .. ':due', key) or 'nan')
if known ~= known then return {'ok'} end
if ends < known then redis.call('ZADD', g .. ':due', math.floor(ends), key) end
note_away(key, ARGV[7])
local before, step = tonumber(redis.call('ZSCORE', g .. ':size', key) or 0), tonumber(ARGV[10])
if math.floor(before / step) ~= math.floor(bytes / step) then resize(key, bytes, tonumber(ARGV[9])) end
for index = 12, 11 + owners do
  local owner = ARGV[index]
  redis.call('SADD', g .. ':own:' .. owner, key)
  live(g .. ':own:' .. owner, 86400000)
  if not string.match(owner, '%.0$') and redis.call('ZADD', g .. ':rep', 'NX', 0, owner) == 1 then live(g .. ':rep', 86400000) end
end
for index = 12 + owners, #ARGV do
  redis.call('SADD', g .. ':sub:' .. ARGV[index], key)
  live(g .. ':sub:' .. ARGV[index], 86400000 + SLACK)
end
return {'ok'}

--## sessions: shared !no-writes
-- All sessions, or those of one principal.
if not ARGV[5] then return {'ok', {}, redis.call('ZRANGE', g .. ':due', 0, -1)} end
local alive = {}
for _, key in ipairs(redis.call('ZRANGE', g .. ':p:' .. ARGV[5], 0, -1)) do
  if redis.call('ZSCORE', g .. ':due', key) then alive[#alive + 1] = key end
end
return {'ok', {}, alive}

--## listed: shared !no-writes
-- The sessions that follow in the order of their keys, at most ARGV[6].
local after = ARGV[5] == '' and '-' or '(' .. ARGV[5]
return {'ok', {}, redis.call('ZRANGEBYLEX', g .. ':keys', after, '+', 'LIMIT', 0, ARGV[6])}

--## totals: shared !no-writes
local size, kept = redis.call('ZSCORE', g .. ':size', ''), redis.call('HGET', g .. ':kp', '')
return {'ok', {}, redis.call('ZCARD', g .. ':due'), redis.call('SCARD', g .. ':away'), size or '0', kept or '0'}

--## away: shared !allow-oom
-- Record whether a session is detached.
note_away(ARGV[5], ARGV[6])
return {'ok'}

--## own: shared !no-writes
return {'ok', {}, redis.call('ZRANGE', g .. ':p:' .. ARGV[5], ARGV[6], ARGV[7], 'WITHSCORES')}

--## seen: shared !allow-oom
for index = 6, #ARGV, 2 do redis.call('ZADD', g .. ':p:' .. ARGV[5], 'XX', ARGV[index + 1], ARGV[index]) end
return {'ok'}

--## size: shared !allow-oom
-- Record a session's log bytes. Reply the bytes of all, and, if they are too many, who frees bytes: the principal
-- with the most. Whether it has the session ARGV[8], which writes; its session with the oldest finished stream; its
-- largest one.
local writer = ARGV[8]
if not redis.call('ZSCORE', g .. ':due', ARGV[5]) then return {'ok', {}, 0, 1, '', ''} end
local total = resize(ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[7]))
live(g .. ':size', 86400000)
live(g .. ':fin', 86400000)
local heaviest = redis.call('ZREVRANGE', g .. ':heavy', 0, 0)[1]
if not heaviest then return {'ok', {}, total, 1, redis.call('ZRANGE', g .. ':fin', 0, 0)[1] or '', writer} end
local oldest = redis.call('ZRANGE', g .. ':pf:' .. heaviest, 0, 0)[1]
local largest = redis.call('ZREVRANGE', g .. ':ps:' .. heaviest, 0, 0)[1]
local is_own = heaviest == redis.call('HGET', g .. ':of', writer)
return {'ok', {}, total, is_own and 1 or 0, oldest or '', largest or writer}

--## outbox: shared !allow-oom
-- Take closed sessions whose listeners may not have been called; other replicas leave them alone for a while.
local keys = redis.call('ZRANGEBYSCORE', g .. ':told', '-inf', now, 'LIMIT', 0, ARGV[5])
for _, key in ipairs(keys) do redis.call('ZADD', g .. ':told', now + tonumber(ARGV[6]), key) end
return {'ok', {}, keys}

--## take_out: shared !allow-oom
-- Remove a member (ARGV[7]) of a set or sorted set, by the command for it.
redis.call(ARGV[5], g .. ARGV[6], ARGV[7])
return {'ok'}

--## subscribed: shared
local key = g .. ':sub:' .. ARGV[5]
redis.call('SADD', key, ARGV[6])
live(key, tonumber(ARGV[7]) + SLACK)
return {'ok'}

--## subscribers: shared
local alive = {}
for _, session in ipairs(redis.call('SMEMBERS', g .. ':sub:' .. ARGV[5])) do
  if redis.call('ZSCORE', g .. ':due', session) then
    alive[#alive + 1] = session
  else
    redis.call('SREM', g .. ':sub:' .. ARGV[5], session)
  end
end
return {'ok', {}, alive}

--## reserve_area: shared
-- Take a place for an area; if it has one, its time starts again. A principal's own area is in :states, a handle's in :areas
-- and among those of its principal.
local key, principal, life, most, own_most = ARGV[5], ARGV[6], tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9])
local places = ARGV[10] == '1' and {g .. ':states'} or {g .. ':areas', g .. ':sp:' .. principal}
local known = redis.call('ZSCORE', places[1], key)
if not known then
  expire_areas(places[1])
  if places[2] then redis.call('ZREMRANGEBYSCORE', places[2], '-inf', now) end
  if redis.call('ZCARD', places[1]) >= most then return {'full'} end
  if own_most and redis.call('ZCARD', places[2]) >= own_most then return {'full'} end
end
for _, place in ipairs(places) do
  redis.call('ZADD', place, known and 'XX' or 'NX', now + life, key)
  live(place, life)
end
if known then keep_allowances(life) end
return {'ok'}

--## seen_area: shared !allow-oom
redis.call('ZADD', g .. ':areas', 'XX', ARGV[7], ARGV[5])
redis.call('ZADD', g .. ':sp:' .. ARGV[6], 'XX', ARGV[7], ARGV[5])
live(g .. ':areas', tonumber(ARGV[7]) - now)
live(g .. ':sp:' .. ARGV[6], tonumber(ARGV[7]) - now)
keep_allowances(tonumber(ARGV[7]) - now)
return {'ok'}

--## grant: shared
-- Let a session or handle keep at least ARGV[7] bytes, at best ARGV[8], if its principal's total allows it.
local key, principal, least, best, count, most = ARGV[5], ARGV[6], tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[10])
if not redis.call('ZSCORE', g .. ':due', key) and not redis.call('ZSCORE', g .. ':areas', key)
  and not redis.call('ZSCORE', g .. ':states', key) then return {'none'} end
local before, known = allowance(key)
local others = tonumber(redis.call('HGET', g .. ':kp', principal) or 0) - before
if others + least > most then return {'full'} end
-- A newer count: the session has lowered its allowance, and the report of it is on its way.
local bytes = math.max(count > known and 0 or before, least, math.min(best, most - others))
count = math.max(count, known)
allow(key, principal, before, bytes, count)
keep_allowances(tonumber(ARGV[11]))
return {'ok', {}, bytes, count}

--## lower: shared !allow-oom
-- A session or handle has given back bytes that it does not need. A report that is not newer than the known one is
-- ignored.
local key, bytes, count = ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[7])
local before, known, principal = allowance(key)
if principal and count > known then allow(key, principal, before, bytes, count) end
return {'ok'}

--## get_task: shared tasks !no-writes
return redis.call('HMGET', g .. ':t:' .. ARGV[5], 'p', 'd', 'v', 'x', 'o')

--## swap_task: shared tasks
-- Replace a task that has still the version ARGV[6] (0: there is none). ARGV: key, version before, principal, value, version, when it is forgotten,
-- owner, and the bounds, if it has any: number of tasks, own ones, bytes, own bytes.
local key, principal, value, last, owner, most = ARGV[5], ARGV[7], ARGV[8], tonumber(ARGV[10]), ARGV[11], tonumber(ARGV[12])
if ARGV[6] == '0' then sweep_tasks() end
local name, sums = g .. ':t:' .. key, g .. ':tp'
local got = redis.call('HMGET', name, 'v', 'd', 'o', 'p')
if (got[1] or '0') ~= ARGV[6] or (got[4] or principal) ~= principal then return {'differs'} end
if not got[1] and is_dead(owner) and not string.match(owner, '%.0$') then return {'dead'} end
local growth, kept = #value - #(got[2] or ''), redis.call('HMGET', sums, principal, '', 'b' .. principal)
local function reaches(place, size, bound) return tonumber(kept[place] or 0) + size > tonumber(bound) end
if most and (not got[1] and (redis.call('ZCARD', g .. ':tasks') >= most or reaches(1, 1, ARGV[13]))
  or reaches(2, math.max(growth, 0), ARGV[14]) or reaches(3, math.max(growth, 0), ARGV[15])) then return {'full'} end
if not got[1] then redis.call('HINCRBY', sums, principal, 1) end
count_bytes(principal, growth)
redis.call('ZADD', g .. ':tasks', last, key)
redis.call('HSET', name, 'p', principal, 'v', ARGV[9], 'd', value, 'x', last, 'o', owner)
redis.call('PEXPIRE', name, last - now + SLACK)
live(g .. ':tasks', last - now + 2 * SLACK)
live(sums, last - now + 2 * SLACK)
if owner == '' then
  disown_task(key, got[3])
else
  for place, one in pairs({[g .. ':to'] = owner, [g .. ':to:' .. owner] = key}) do
    redis.call('SADD', place, one)
    live(place, last - now + 2 * SLACK)
  end
end
if got[1] then publish('bell', 'task', key, '') end
return {'ok'}

--## orphan_tasks: shared tasks !allow-oom
-- Some tasks of dead owners, and these of the caller; then the names of all tasks of the caller, if they are more than it runs.
local found, most = {}, tonumber(ARGV[5])
local function find(key, owner)
  local got = redis.call('HMGET', g .. ':t:' .. key, 'p', 'd', 'v', 'o', 'x')
  if got[4] == owner and tonumber(got[5]) > now then
    found[#found + 1] = {key, got[1], owner, got[2], tonumber(got[3])}
  else
    disown_task(key, owner)
  end
end
for _, owner in ipairs(redis.call('SMEMBERS', g .. ':to')) do
  if is_dead(owner) then
    for _, key in ipairs(redis.call('SRANDMEMBER', g .. ':to:' .. owner, 20)) do find(key, owner) end
    if redis.call('EXISTS', g .. ':to:' .. owner) == 0 then redis.call('SREM', g .. ':to', owner) end
  end
end
for index = 6, #ARGV do find(ARGV[index], me) end
local mine = g .. ':to:' .. me
return {'ok', {}, found, redis.call('SCARD', mine) > most and redis.call('SMEMBERS', mine) or {}}

--## sweep_tasks: shared tasks !allow-oom
sweep_tasks()
expire_areas(g .. ':areas')
expire_areas(g .. ':states')
return {'ok'}
