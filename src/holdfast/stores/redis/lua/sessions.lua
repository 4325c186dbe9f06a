-- Sessions: opened, found, changed, examined, closed; and their subscriptions. One slot: the session's.
--
-- A session is opened in two steps: `reserve` takes a place in the shared slot, then `open` makes the session. If the replica
-- dies in between, a sweep finds a place without a session and frees it. It ends in two steps too, the other way round.
-- The shared slot only knows when to examine a session; whether it is due is decided here (`look`), by the session's own
-- numbers, in the step that closes it. So a client that comes back at the last moment is either first, and the
-- session stays open, or finds no session.
--
-- Sent again: open finds the session; close, evict and look find their closing in :x; find sets the same; a subscription
-- that exists is not counted again.

--## open: session
-- ARGV: grace, idle time, lifetime, the record and its home, then other fields of the main hash and their values.
if redis.call('HEXISTS', base, 'n') == 1 then return {'ok', {}} end
S = {
  tt = now, ts = 0, hint = math.huge, x = 0, away = 0, fence = 0, run = 0, calls = 0, rd = 0, by = 0,
  reported = 0, later = '', gr = tonumber(ARGV[5]), il = tonumber(ARGV[6]), last = now + tonumber(ARGV[7])
}
S.hint = due()
K = {nsub = 0, kb = 0, kv = 0}
redis.call('DEL', base .. ':x')
save('o:' .. me, 1, 'rec', cmsgpack.pack({ARGV[8], '', '', ARGV[9]}), unpack(ARGV, 10))
return {'ok', {}}

--## find: session
local got = load('pr', 'rec')
if not S or got[2] ~= ARGV[5] then return {'none'} end
returned()
save()
return {'ok', todo, has_returned(), got[3]}

--## take_home: session !allow-oom
-- Change the home of a session, if it is the expected one. The same command sent again finds its own change.
local packed = load('rec')[2]
if not S then return {'none'} end
local record = unpack_table(packed)
if record[4] == ARGV[5] and ARGV[5] ~= ARGV[6] then
  record[4] = ARGV[6]
  packed = cmsgpack.pack(record)
  save('rec', packed)
end
return {'ok', {}, packed}

--## change: session !allow-oom
-- ARGV: the places in the packed record, and the new values.
local packed = load('rec')[2]
if not S then return {'none'} end
local record = unpack_table(packed)
for index = 5, #ARGV, 2 do record[tonumber(ARGV[index])] = ARGV[index + 1] end
redis.call('HSET', base, 'rec', cmsgpack.pack(record))
return {'ok', {}}

--## close: session closing !allow-oom
load()
if not S then return closed_by_me() or {'none'} end
return closing(ARGV[5], ARGV[6] ~= '' and {ARGV[6], ARGV[7], ARGV[8]})

--## unlinger: session !allow-oom
-- Forget the streams of a closed session that were kept for its readers.
load()
if S then return {'none'} end
for _, field in ipairs(redis.call('HKEYS', base)) do
  local stream = string.match(field, '^c:(.*)$')
  if stream then redis.call('UNLINK', base .. ':e:' .. stream) end
end
redis.call('UNLINK', base)
return {'ok'}

--## evict: session closing !allow-oom
-- Close it only if it is as idle as it was when it was chosen.
load()
if not S then return closed_by_me() or {'none'} end
if S.run > 0 or S.rd > 0 or S.tt > tonumber(ARGV[5]) then return {'none'} end
return closing('evicted')

--## peek: session !no-writes
load()
if not S then return {'none'} end
return {'ok', {}, S.tt, (S.run > 0 or S.rd > 0) and 1 or 0}

--## show: session kept !no-writes
-- The view of operators on a session.
local got = load('rec', 'k')
if not S then return {'none'} end
K = unpack_table(got[3])
return {'ok', {}, got[2], S.away, math.max(0, due() - now), S.rd, S.run, S.by, kept()}

--## look: session closing !allow-oom
-- Close the session if it is due; else reply when to examine it again, and let all its keys exist until then.
load()
if not S then
  local left = redis.call('GET', base .. ':x')
  return closed_by_me() or {left and 'left' or 'none'}
end
local ends, why = due()
if ends <= now and S.run == 0 then return closing(why) end
-- The time of the main hash is set again too.
S.hint, S.x = math.max(ends, now + 1000), 0
for _, field in ipairs(redis.call('HKEYS', base)) do
  local stream = string.match(field, '^c:(.*)$')
  if stream then redis.call('PEXPIRE', base .. ':e:' .. stream, ttl()) end
end
for _, suffix in ipairs({':f', ':k', ':o', ':q'}) do redis.call('PEXPIRE', base .. suffix, ttl()) end
save()
return {'later', {}, S.hint, S.away}

--## drop: session !allow-oom
-- Forget a session whose record cannot be read, without reading it.
for _, suffix in ipairs({'', ':f', ':k', ':o', ':q', ':s', ':x'}) do redis.call('UNLINK', base .. suffix) end
return {'ok', {}}

--## reported: session !allow-oom
redis.call('DEL', base .. ':x')
return {'ok', {}}

--## unreported: session !allow-oom
local packed = redis.call('GET', base .. ':x')
if not packed then return {'none'} end
return {'closed', {}, unpack(cmsgpack.unpack(packed).last)}

--## subscribe: session kept
load()
if not S then return {'none'} end
if redis.call('HEXISTS', base, 'u:' .. ARGV[5]) == 0 then
  local size = (keeps().bsub or 0) + tonumber(ARGV[7])
  if K.nsub >= tonumber(ARGV[6]) or size > tonumber(ARGV[8]) then return {'full'} end
  local more = ENTRY + tonumber(ARGV[7])
  if lacks(more) then return ask_room(more) end
  K.nsub, K.bsub = K.nsub + 1, size
  save('u:' .. ARGV[5], ARGV[9])
end
return {'ok', {}}

--## unsubscribe: session kept !allow-oom
load()
if not S then return {'none'} end
local uri = redis.call('HGET', base, 'u:' .. ARGV[5])
if uri then
  redis.call('HDEL', base, 'u:' .. ARGV[5])
  keeps()
  K.nsub, K.bsub = K.nsub - 1, math.max(0, (K.bsub or 0) - #uri)
  give_back()
  save()
end
return {'ok', todo}

--## subscriptions: session !no-writes
load()
if not S then return {'none'} end
local found, got = {}, redis.call('HGETALL', base)
for index = 1, #got, 2 do
  if string.match(got[index], '^u:') then found[#found + 1] = got[index + 1] end
end
return {'ok', {}, found}
