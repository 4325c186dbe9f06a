-- The beginning of every script that works on a session (or on the scope of a handle, cells.lua).
--
-- Keys. KEYS[1] is the session's main hash, hf:<format>:<namespace>:{<session>}. Every other key of the session is KEYS[1] with
-- a suffix. The part in braces alone decides the slot, so all keys of a session are in one slot of a cluster, and a script
-- may build their names itself. No script reads or writes a key of another session or of the shared slot.
--
--   main hash   s             the numbers of the session, packed: the table S below
--               rec           the record as it was opened   lv, in  what may change of it: log level, initialized
--               c:<stream>    an exchange, packed: the tables C below   i:<typed id>  the stream that has this id
--               p:<stream>    the request, if the exchange may be run again
--               a:<ask>       an ask, packed   q:<stream>  the names of a stream's asks, packed
--               d             digests of answers whose asks are forgotten, packed
--               u:<hash>      a subscription: its URI
--   :e:<stream> the events of a stream (a Redis stream)   :f  finished streams, the oldest first
--   :k          the fields of state   :o, :q  results of the last operations on state, and their order
--   :x          what is left of a closed session until its listeners were called (closing.lua)
--
-- S, the session:
--   st            'a' attached, 'd' detached
--   pr            principal
--   ver, sa, iso, gr, il, lt   facts of the record (sessions.py)
--   t0, tt        when it was opened; when its client was last seen
--   ts, tb        when an exchange last ended; when a reader last broke
--   hint          when a sweep examines it next, as the shared slot knows it (index.lua)
--   fence         the last fence that was given
--   run, calls    exchanges in flight; calls among them
--   rd            readers
--   ow            the replicas that have work here
--   by, told      log bytes now; log bytes as last reported to the shared slot
--   out           asks without an answer
--   nsub, bsub    subscriptions, and their bytes
--   kb, kn, kv    fields of state: bytes, number, last version
--   pb            bytes of kept requests
--   al, av, as    the allowance (kept.lua)
--   hd            calls that hold their turn
--   hm            the home, the name of a replica
--   ret, det      the commands that attached and detached the session last
-- C[stream], an exchange:
--   id, dg, ctl   the client's id, the digest of the request, whether it is control traffic
--   fence, own    the fence that may write; the owner
--   run           in flight
--   rd, gen, aop, past   the reader (log.lua)
--   top, tag, low, ltag, first, dl, dtag, n, by, closed, fin   the log (log.lua)
--   kept          the answer is kept for a repeat
--   pb, runs      bytes of the kept request; how often it was started
--   t             when it was claimed
--   cancel        the client has cancelled it
--   word          answers to probes of the reader, a counter: each `vouch` raises it; odd: the reader lives, even: it is lost
-- A field that an older release did not write is nil; the code takes its default.
--
-- One step. Redis runs one script at a time and all of it, so no client sees a half of what a script does. A script reads S and
-- the exchanges it needs, decides, and writes them with save(). It replies with what happened and with `todo`: what
-- other slots must receive (core.py sends it). They may arrive late or never: nothing wrong follows, only work that is done later.
--
-- Sent again. A reply can be lost, and the sender cannot know whether the script ran. It then sends the same command with the
-- same name (`op`) and `again` set. A script that finds its own result replies as the first time and changes nothing:
-- most find it by a value that only this command can have written (a stream's name, an event's tag, a digest, the name of an
-- operation on state); where there is none, S or C keeps the `op` (ret, det, aop).
--
-- Refused before it begins. Each script declares whether it writes, and whether it may run when memory is full
-- (scripts.py), so Redis never stops one in the middle. While a cluster moves a slot, the second key that link.py
-- names makes Redis refuse the command before it starts.
--
-- Every key has a time to live, longer than the session can live without another command: what no replica deletes
-- disappears by itself. Times are milliseconds of one clock, Redis's own unless a test passes another in ARGV[1]. Tags are
-- text, because Lua's numbers have 53 bits.
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

-- Read S and some fields of the main hash; returns the fields after S's.
local function load(...)
  local got = redis.call('HMGET', base, 's', ...)
  if got[1] then
    S = cmsgpack.unpack(got[1])
    if type(S) ~= 'table' or not S.pr then error('unreadable record') end
  end
  return got
end

-- The same with an exchange: one command for both.
local function load_exchange(stream, ...)
  local got = load('c:' .. stream, ...)
  C[stream] = got[2] and cmsgpack.unpack(got[2]) or false
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

-- Have the session looked at when it is due. The shared slot receives the time only if it is earlier than the one there.
local function schedule()
  local ends = due()
  if ends < S.hint then
    S.hint = ends
    todo[#todo + 1] = 'hint'
    todo[#todo + 1] = ends
  end
end

-- Call a command with any number of arguments. Lua's unpack passes only some thousands at once.
local CHUNK = 1000
local function in_chunks(arguments, call)
  for index = 1, #arguments, CHUNK do call(unpack(arguments, index, math.min(index + CHUNK - 1, #arguments))) end
end

-- Write S, the exchanges that were looked at, and the given fields; the session lives on.
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

-- The exchange of this stream, or nil. The standalone stream has one too. save() writes what the caller changes in it.
local function exchange_of(stream)
  local c = C[stream]
  if c == nil then
    local packed = redis.call('HGET', base, 'c:' .. stream)
    c = packed and cmsgpack.unpack(packed) or false
    C[stream] = c
  end
  return c or nil
end

-- The client is here: the idle time starts again, and a detached session is attached again.
local function returned()
  S.tt = now
  if S.st == 'd' then
    S.st, S.ret = 'a', op
  end
end

-- Whether this command brought the session back: also if it is sent again.
local function has_returned() return S.ret == op and 1 or 0 end

-- Free the id of an exchange, unless a later exchange has it.
local function release(stream, c)
  c.kept = nil
  if c.id and redis.call('HGET', base, 'i:' .. c.id) == stream then
    redis.call('HDEL', base, 'i:' .. c.id)
  end
end

-- The parts of a record that reply to the caller; `got` are S, rec, lv and in.
local function record_parts(got) return got[2], got[3] or '', got[4] or '', S.hm or '' end

local function replica_of(owner) return (string.gsub(owner, '%.%d+$', '')) end

-- Wake up another replica. The message says where to look, and nothing else; it may be lost (wakeups.py).
local function publish(owner, what, name)
  if owner and owner ~= me then
    redis.call('PUBLISH', prefix .. 'bell:' .. replica_of(owner), what .. ' ' .. session_key .. ' ' .. name)
  end
end

-- When an ask is forgotten, the digest of its answer stays for a while: a repeat of the answer is recognized by it.
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

-- Forget the asks of a stream: packed, if the caller has read them already, else nil.
local function forget_asks(stream, packed)
  if packed == nil then packed = redis.call('HGET', base, 'q:' .. stream) end
  if packed then
    for _, name in ipairs(cmsgpack.unpack(packed)) do drop_ask(name) end
    redis.call('HDEL', base, 'q:' .. stream)
  end
end

-- Before a replica has its first work in this session, the shared slot must know it: if the replica dies, others search there
-- for its work. So the script replies 'register'; the caller sends `register` to the shared slot, then this command again.
local function must_register(is_registered)
  if S.ow[me] then return false end
  if is_registered ~= '1' then return true end
  S.ow[me] = 1
  save()
  return false
end
