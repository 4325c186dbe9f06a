-- The beginning of every script that works on a session (or on the scope of a handle, cells.lua).
--
-- Keys. KEYS[1] is the session's main hash, hf:<format>:<namespace>:{<session>}. Every other key of the session is KEYS[1] with
-- a suffix. The part in braces alone decides the slot, so all keys of a session are in one slot of a cluster, and a script
-- may build their names itself. No script reads or writes a key of another session or of the shared slot.
--
--   main hash   n             the numbers of the session: the table S below, in the order of NUMBERS, 8 bytes each
--               pr            its principal   sa, iso        other facts of the record that scripts need (sessions.py)
--               rec           the record as it was opened and its variable fields, packed: log level, initialized,
--                             the home
--               o:<owner>     a replica that has work here
--               k             the kept data of the session, packed: the table K (kept.lua)
--               ret, det      the commands that attached and detached the session last   hd  calls that hold their turn, packed
--               c:<stream>    an exchange, packed: the tables C below   i:<typed id>  the stream that has this id
--               w             the streams that do not start, packed: `withdrawn` below
--               a:<ask>       an ask, packed   q:<stream>  the names of a stream's asks, packed
--               out           the number of asks without an answer   d  digests of answers whose asks are forgotten, packed
--               u:<hash>      a subscription: its URI
--   :e:<stream> the events of a stream (a Redis stream)   :f  finished streams, the oldest first
--   :k          the fields of state   :o, :q  results of the last operations on state, and their order
--   :x          the rest of a closed session until its listeners were called (closing.lua)
--
-- S, the session: the numbers that a plain call needs, and few others, because a plain call reads and writes all of them.
--   tt            when its client was last seen
--   ts            when an exchange last ended or the last reader broke
--   hint          when a sweep examines it next, as the shared slot knows it (index.lua)
--   x             until when the time to live of the main hash is long enough
--   gr, il, last  grace and idle time of the record; when its lifetime is over
--   away          1: detached, 0: attached
--   fence         the last fence that was given
--   run, calls    exchanges in flight; calls among them
--   rd            readers
--   by, reported  log bytes now; log bytes as last reported to the shared slot
--   later         bytes after these numbers: not empty if the session has the field w, so that a plain call need not read it. Bytes
--                 that a later release has added are kept
-- C[stream], an exchange:
--   id, dg, ctl   the client's id, the digest of the request, whether it is control traffic
--   fence, own    the fence that may write; the owner
--   run           in flight
--   rd, gen, aop, past   the reader (log.lua)
--   top, tag, low, ltag, first, dl, dtag, n, by, closed, fin   the log (log.lua)
--   kept          since when the answer is kept for a repeat
--   t             when it was claimed
--   cancel        the client has cancelled it
--   q             it has asks, or had some (q:<stream>)
--   word          answers to probes of the reader, a counter: each `vouch` raises it; odd: the reader is alive, even:
-- it is lost
-- A field of C or K that an older release did not write is nil; the code takes its default.
--
-- One step. Redis runs one script at a time and all of it, so no client sees half of the work of a script. A script
-- reads S and the exchanges it needs, decides, and writes them with save(). It replies with its result and with
-- `todo`: the messages for other slots (core.py sends them). They may arrive late or never: nothing wrong follows,
-- only work that is done later.
--
-- Sent again. A reply can be lost, and the sender cannot know whether the script ran. It then sends the same command with the
-- same name (`op`) and `again` set. A script that finds its own result replies as the first time and changes nothing:
-- most find it by a value that only this command can have written (a stream's name, an event's tag, a digest, the name of an
-- operation on state); where there is none, the `op` is kept (ret, det, aop).
--
-- Refused before it begins. Each script declares whether it writes, and whether it may run when memory is full
-- (scripts.py), so Redis never stops one in the middle. While a cluster moves a slot, the second key that link.py
-- names makes Redis refuse the command before it starts.
--
-- Every key has a time to live, longer than the session can exist without another command: a key that no replica
-- deletes disappears by itself. Times are milliseconds of one clock, Redis's own unless a test passes another in
-- ARGV[1]. Tags are
-- text, because Lua's numbers have 53 bits.
local base = KEYS[1]
local now = tonumber(ARGV[1])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
-- ARGV[4]: '0', '1' if the command is sent again, 'r' and 'R' the same after the sender has registered (must_register).
local me, op, again = ARGV[2], ARGV[3], ARGV[4] == '1' or ARGV[4] == 'R'
local SLACK = 3600000
local ANSWERS, ANSWERED, KEPT = 256, 300000, 300000
local NUMBERS, SIZE = '<dddddddddddddd', 112
local S, K
local C = {}
local todo = {}

-- Read S and some fields of the main hash; returns all of them, S's first.
local function load(...)
  local got = redis.call('HMGET', base, 'n', ...)
  local n = got[1]
  if n then
    if #n < SIZE then error('unreadable record') end
    local tt, ts, hint, x, gr, il, last, away, fence, run, calls, rd, by, reported = struct.unpack(NUMBERS, n)
    S = {
      tt = tt, ts = ts, hint = hint, x = x, gr = gr, il = il, last = last, away = away, fence = fence,
      run = run, calls = calls, rd = rd, by = by, reported = reported, later = #n > SIZE and string.sub(n, SIZE + 1) or ''
    }
  end
  return got
end

-- An exchange is packed as a map. Most never have more than a claim writes, so a claim writes the fields of that in a fixed
-- order (LAYOUT), which takes half the time; the first byte tells the two apart.
local CLAIMED, LAYOUT = 1, '<BddBI4c0I4c0I4c0'
local function unpack_exchange(packed)
  if string.byte(packed) ~= CLAIMED then return cmsgpack.unpack(packed) end
  local _, fence, t, control, id, own, digest = struct.unpack(LAYOUT, packed)
  return {id = id, dg = digest, ctl = control == 1 and 1 or nil, fence = fence, own = own, rd = own, run = 1, gen = 0, t = t}
end

-- The same as load with an exchange, which is the second field: one command for both.
local function load_exchange(stream, ...)
  local got = load('c:' .. stream, ...)
  C[stream] = got[2] and unpack_exchange(got[2]) or false
  return got
end

local function unpack_table(packed)
  local unpacked = packed and cmsgpack.unpack(packed)
  if type(unpacked) ~= 'table' then error('unreadable record') end
  return unpacked
end

-- K, read when it is first needed.
local function keeps()
  if not K then K = unpack_table(redis.call('HGET', base, 'k')) end
  return K
end

local function ttl()
  return math.max(S.il, S.gr) + math.max(0, S.hint - now) + SLACK
end

-- When the session ends if nothing happens before, and why. A reader keeps it from idling, not from ageing.
local function due()
  local ends, why
  if S.away == 1 then
    ends, why = S.ts + S.gr, 'grace over'
  elseif S.rd > 0 then
    ends, why = math.huge, 'idle'
  else
    ends, why = S.tt + S.il, 'idle'
  end
  if ends <= S.last then return ends, why end
  return S.last, 'expired'
end

-- Let a sweep examine the session when it is due. The shared slot receives the time only if it is earlier than the
-- known one.
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

-- Write S, K, the exchanges that were read, and the given fields; the session stays. Its time to live is set again
-- only when half of the slack is used up, not by every command.
local function save(...)
  local is_late = S.x < now or S.x < S.hint
  if is_late then S.x = math.max(now, S.hint) + SLACK / 2 end
  local n = struct.pack(
    NUMBERS, S.tt, S.ts, S.hint, S.x, S.gr, S.il, S.last, S.away, S.fence, S.run, S.calls, S.rd, S.by, S.reported
  )
  if K or next(C) then
    --+ in_chunks
    local args = {'n', n .. S.later, ...}
    for stream, c in pairs(C) do
      if c then
        args[#args + 1] = 'c:' .. stream
        args[#args + 1] = cmsgpack.pack(c)
      end
    end
    if K then
      args[#args + 1] = 'k'
      args[#args + 1] = cmsgpack.pack(K)
    end
    in_chunks(args, function(...) redis.call('HSET', base, ...) end)
  else
    redis.call('HSET', base, 'n', n .. S.later, ...)
  end
  if is_late then
    --+ ttl
    redis.call('PEXPIRE', base, ttl())
  end
end

-- The exchange of this stream, or nil. The standalone stream has one too. save() writes the caller's changes to it.
local function exchange_of(stream)
  local c = C[stream]
  if c == nil then
    local packed = redis.call('HGET', base, 'c:' .. stream)
    c = packed and unpack_exchange(packed) or false
    C[stream] = c
  end
  return c or nil
end

-- The shared slot counts the detached sessions.
local function report_away()
  todo[#todo + 1] = 'away'
  todo[#todo + 1] = S.away
end

-- The client is here: the idle time starts again, and a detached session is attached again.
local is_back = false
local function returned()
  S.tt = now
  if S.away == 1 then
    --+ report_away
    S.away, is_back = 0, true
    report_away()
    redis.call('HSET', base, 'ret', op)
  end
end

-- Whether this command attached the session again: also if it is sent again.
local function has_returned() return (is_back or (again and redis.call('HGET', base, 'ret') == op)) and 1 or 0 end

-- Whether an exchange has its id, and no later exchange. `holder`: the stream that has the id, if the caller has read it.
local function has_id(stream, c, holder)
  if holder == nil then holder = c.id and redis.call('HGET', base, 'i:' .. c.id) end
  return holder == stream
end

-- The reply for a request that exists already.
local function duplicate(stream, c, is_same)
  return {'duplicate', {}, stream, is_same and 1 or 0, c.run and 0 or 1, c.rd and 1 or 0}
end

-- Free the id of an exchange, unless a later exchange has it.
local function release(stream, c)
  c.kept = nil
  if has_id(stream, c) then redis.call('HDEL', base, 'i:' .. c.id) end
end

-- The streams that do not start, the oldest first: of each its name and whether it is certain that nothing of it ran (1 or 0).
local WITHDRAWN = 64
local function withdrawn(packed, stream)
  local known = packed and cmsgpack.unpack(packed) or {}
  for index, one in ipairs(known) do
    if one[1] == stream then return known, index end
  end
  return known
end

-- Remember one of them.
local function withdraw(packed, stream, is_sure)
  local known, index = withdrawn(packed, stream)
  if not index then
    index = #known + 1
    known[index] = {stream, 0}
  end
  if is_sure then known[index][2] = 1 end
  while #known > WITHDRAWN do table.remove(known, 1) end
  S.later = 'w'
  redis.call('HSET', base, 'w', cmsgpack.pack(known))
end

-- Whether it is certain that nothing of an exchange ran, which does not exist.
local function is_given_back(stream)
  local known, index = withdrawn(redis.call('HGET', base, 'w'), stream)
  return index and known[index][2] == 1
end

local function replica_of(owner) return (string.gsub(owner, '%.%d+$', '')) end

-- Wake up another replica. The message says where to look, and nothing else; it may be lost (wakeups.py).
local function publish(owner, what, name)
  if owner and owner ~= me then
    local prefix, session_key = string.match(base, '^(.-){(.*)}')
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
    if ask.p then remember_answer(name, ask.d) else redis.call('HINCRBY', base, 'out', -1) end
    redis.call('HDEL', base, 'a:' .. name)
  end
end

-- Forget the asks of an exchange that has some.
local function forget_asks(stream, c)
  local packed = redis.call('HGET', base, 'q:' .. stream)
  for _, name in ipairs(packed and cmsgpack.unpack(packed) or {}) do drop_ask(name) end
  redis.call('HDEL', base, 'q:' .. stream)
  c.q = nil
end

-- Before a replica has its first work in this session, the shared slot must know it: if the replica dies, other
-- replicas search there for its work. So the script replies 'register'; the caller sends `register` to the shared
-- slot, then this command again.
-- For a replica without the field o:<me>.
local function must_register()
  if ARGV[4] ~= 'r' and ARGV[4] ~= 'R' then return true end
  redis.call('HSET', base, 'o:' .. me, 1)
  return false
end
