-- What every script of a session begins with. KEYS[1] is the session's main hash; every other key of it is
-- KEYS[1] with a suffix, so all of them share its slot.
--   main hash   s: the numbers below, packed   rec: the record as it was opened   lv, in: what may change of it
--               c:<stream>: an exchange, packed   i:<typed id>: the stream that has the id
--               p:<stream>: what it takes to run it again, if that may be
--               a:<ask>: an ask, packed   q:<stream>: its asks, packed   u:<hash>: a subscription, its length
--               d: digests of answers whose asks are forgotten, packed
--   s.hd        calls that hold their turn beyond their end: fence and owner
--   :e:<stream> the log   :f finished streams, oldest first   :k state   :o, :q results of state operations
--   :x          what is left of a closed session until its listeners were told
-- Of a closed session the main hash keeps only the streams that are still read, for a moment (closing.lua).
-- Times are milliseconds of one clock; tags are text, for Lua's numbers are too small for them.
local base = KEYS[1]
local now = tonumber(ARGV[1])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
local me, op, again = ARGV[2], ARGV[3], ARGV[4] == '1'
local prefix, session_key = string.match(base, '^(.-){(.*)}')
local SLACK = 3600000
local ANSWERS, ANSWERED = 256, 300000
local S
local C = {}
local todo = {}

local function load(...)
  local got = redis.call('HMGET', base, 's', ...)
  if got[1] then
    S = cmsgpack.unpack(got[1])
    if type(S) ~= 'table' or not S.pr then error('unreadable record') end
  end
  return got
end

local function ttl()
  return math.max(S.il, S.gr) + math.max(0, S.hint - now) + SLACK
end

-- When the session ends if nothing happens before, and why. A reader keeps it from idling, not from ageing.
local function due()
  local ends, why
  if S.st == 'd' then
    ends, why = math.max(S.tb, S.ts) + S.gr, 'grace over'
  elseif S.rd > 0 then
    ends, why = math.huge, 'idle'
  else
    ends, why = S.tt + S.il, 'idle'
  end
  local expires = S.t0 + S.lt
  if ends <= expires then return ends, why end
  return expires, 'expired'
end

-- Have the session looked at when it is due: the index is told only if that is earlier than it knows.
local function schedule()
  local ends = due()
  if ends < S.hint then
    S.hint = ends
    todo[#todo + 1] = 'hint'
    todo[#todo + 1] = ends
  end
end

-- Call a command with any number of arguments: Lua can pass no more than some thousands at once.
local CHUNK = 1000
local function in_chunks(arguments, call)
  for index = 1, #arguments, CHUNK do call(unpack(arguments, index, math.min(index + CHUNK - 1, #arguments))) end
end

local function save(...)
  local args = {'s', cmsgpack.pack(S), ...}
  for stream, c in pairs(C) do
    if c then
      args[#args + 1] = 'c:' .. stream
      args[#args + 1] = cmsgpack.pack(c)
    end
  end
  in_chunks(args, function(...) redis.call('HSET', base, ...) end)
  redis.call('PEXPIRE', base, ttl())
end

-- The exchange or standalone channel of this name, or nil. What it changes is written by save().
local function channel(stream)
  local c = C[stream]
  if c == nil then
    local packed = redis.call('HGET', base, 'c:' .. stream)
    c = packed and cmsgpack.unpack(packed) or false
    C[stream] = c
  end
  return c or nil
end

-- The client is here: the idle clock starts again, and a detached session is back.
local function returned()
  S.tt = now
  if S.st == 'd' then
    S.st, S.ret = 'a', op
  end
end

local function has_returned() return S.ret == op and 1 or 0 end

local function release(stream, c)
  c.kept = nil
  if c.id and redis.call('HGET', base, 'i:' .. c.id) == stream then
    redis.call('HDEL', base, 'i:' .. c.id)
  end
end

local function replica_of(owner) return (string.gsub(owner, '%.%d+$', '')) end

local function publish(owner, what, name)
  if owner and owner ~= me then
    redis.call('PUBLISH', prefix .. 'bell:' .. replica_of(owner), what .. ' ' .. session_key .. ' ' .. name)
  end
end

-- Of an answer whose ask is forgotten the digest stays for a while: 'd', the oldest first.
local function remember_answer(name, digest)
  local packed = redis.call('HGET', base, 'd')
  local digests = packed and cmsgpack.unpack(packed) or {}
  while #digests > 0 and (#digests >= ANSWERS or digests[1][3] <= now) do table.remove(digests, 1) end
  digests[#digests + 1] = {name, digest, now + ANSWERED}
  redis.call('HSET', base, 'd', cmsgpack.pack(digests))
end

local function drop_ask(name)
  local packed = redis.call('HGET', base, 'a:' .. name)
  if packed then
    local ask = cmsgpack.unpack(packed)
    if ask.p then remember_answer(name, ask.d) else S.out = S.out - 1 end
    redis.call('HDEL', base, 'a:' .. name)
  end
end

local function forget_asks(stream)
  local packed = redis.call('HGET', base, 'q:' .. stream)
  if packed then
    for _, name in ipairs(cmsgpack.unpack(packed)) do drop_ask(name) end
    redis.call('HDEL', base, 'q:' .. stream)
  end
end

-- A replica has its first work in this session only after reapers know to look here for it.
local function must_sit(has_seat)
  if S.ow[me] then return false end
  if has_seat ~= '1' then return true end
  S.ow[me] = 1
  save()
  return false
end
