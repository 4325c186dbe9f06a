-- State: read, and replaced if nothing has changed (stores/shared/state.py); and the beginning of areas.

--## load_state: area !no-writes
if not left() then return 0 end
return redis.call('HMGET', state, unpack(ARGV, 2))

--## write_state: area
-- ARGV: time, known head, next head, how many of the names must be absent, number of names, the names; number of words to set, the words; the
-- fields to delete. Reply 1; 0 if there is no such session or area; else, and nothing has changed, the head and what is stored under the names.
local ends, names = left(), 5 + tonumber(ARGV[5])
if not ends then return 0 end
local found = redis.call('HMGET', state, 'h', unpack(ARGV, 6, names))
local differs = (found[1] or '') ~= ARGV[2]
for index = 2, 1 + tonumber(ARGV[4]) do differs = differs or found[index] end
if differs then return found end
local sets = names + 1 + tonumber(ARGV[names + 1])
redis.call('HSET', state, 'h', ARGV[3], unpack(ARGV, names + 2, sets))
if sets < #ARGV then redis.call('HDEL', state, unpack(ARGV, sets + 1)) end
for index = names + 2, sets, 2 do
  if string.sub(ARGV[index], 1, 2) == 'o:' then
    redis.call('RPUSH', base .. ':q', ARGV[index])
    if redis.call('LLEN', base .. ':q') > 256 then redis.call('HDEL', state, redis.call('LPOP', base .. ':q')) end
  end
end
keep_state(ends)
return 1

--## open_area: area
local due, life, principal = area()
if not due or due <= now then
  redis.call('DEL', state, base .. ':q')
  return touch(tonumber(ARGV[3]), ARGV[2])
end
return principal == ARGV[2] and touch(life, principal) or {'none'}

--## find_area: area
local due, life, principal = area()
return due and due > now and principal == ARGV[2] and touch(life, principal) or {'none'}

--## state_owner: area !no-writes
-- Whose state it is: for how long it exists, the principal of an area, the record of a session.
local _, life, principal = area()
return {life or redis.call('PTTL', base), principal or false, redis.call('HGET', base, 'r')}
