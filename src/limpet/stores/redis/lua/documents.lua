-- Sessions as numbers and fields, and their logs (stores/shared/shelf.py says what each script does).
--
-- KEYS[1] is the main hash of a session, lp:<format>:<namespace>:{<session>}: n its numbers, the fields of stores/shared/fields.py,
-- z:<stream> the head of a log that a closing has left, after the time until which it is left. :k and :q are its state (state.lua).
-- :e:<stream> has the events of a log, a Redis stream: the event with number s has the id s-0, and two fields: t its tag, d its data.
-- :x is the closing of a session until its listeners were called.
--
-- Tags are text, because Lua's numbers have 53 bits. A part of the arguments that most commits do not have is packed with msgpack. Bytes
-- cannot be packed: in their place stands their number among the last arguments.

--## commit:
-- ARGV: exact, after, the writer's field, number, acknowledged, number of words to set, of fields to delete, of fields to compare, the conditions of
-- numbers, the rest; then the words to set, the fields to delete, those to compare, their values ('' if absent), and the bytes of the rest.
-- Conditions are doubles, as stores/shared/commit.py has them: SET is 0, ADD 1, MAX 2, MIN 3.
local base, after = KEYS[1], ARGV[2]
local puts = 10 + tonumber(ARGV[6])
local deletes = puts + tonumber(ARGV[7])
local compared = tonumber(ARGV[8])
local n = redis.call('HGET', base, 'n')
if not n then return 3 end
if n ~= ARGV[1] then
  local stored = redis.call('HMGET', base, ARGV[3], unpack(ARGV, deletes + 1, deletes + compared))
  local last, number = tonumber(stored[1] or 0), tonumber(ARGV[4])
  if last == number then return {n, 0} end
  if last < tonumber(ARGV[5]) or last > number then return 2 end
  if ARGV[9] == '' then return {n, redis.call('HGETALL', base)} end
  if #n < #after then error('unreadable record') end
  local differ = {}
  for index = 1, compared do
    if (stored[index + 1] or '') ~= ARGV[deletes + compared + index] then
      differ[#differ + 1] = ARGV[deletes + index]
      differ[#differ + 1] = stored[index + 1]
    end
  end
  local count = math.floor(#n / 8)
  local layout = '<' .. string.rep('d', count)
  local numbers = {struct.unpack(layout, n)}
  local given = {struct.unpack('<' .. string.rep('d', #ARGV[9] / 8), ARGV[9])}
  local passes, changes = #differ == 0, 3 * given[1] + 2
  for index = 2, changes - 1, 3 do
    local value = numbers[given[index] + 1]
    if value < given[index + 1] or value > given[index + 2] then passes = false end
  end
  if not passes then return {n, differ} end
  numbers[1] = numbers[1] + 1
  for index = changes, #given - 3, 3 do
    local place, how, value = given[index] + 1, given[index + 1], given[index + 2]
    if how == 1 then value = numbers[place] + value
    elseif how == 2 then value = math.max(numbers[place], value)
    elseif how == 3 then value = math.min(numbers[place], value) end
    numbers[place] = value
  end
  after = struct.pack(layout, unpack(numbers, 1, count)) .. string.sub(n, 8 * count + 1)
end
local rest, bytes = ARGV[10] ~= '' and cmsgpack.unpack(ARGV[10]), deletes + 2 * compared
redis.call('HSET', base, 'n', after, ARGV[3], ARGV[4], unpack(ARGV, 11, math.min(puts, 4010)))
for index = 4011, puts, 4000 do redis.call('HSET', base, unpack(ARGV, index, math.min(puts, index + 3999))) end
for index = puts + 1, deletes, 4000 do
  redis.call('HDEL', base, unpack(ARGV, index, math.min(deletes, index + 3999)))
end
if rest then
  for _, stream in ipairs(rest.drop or {}) do redis.call('UNLINK', base .. ':e:' .. stream) end
  local events = rest.events or {}
  for index = 1, #events, 4 do
    local key = base .. ':e:' .. events[index]
    redis.call('XADD', key, events[index + 1] .. '-0', 't', events[index + 2], 'd', ARGV[bytes + events[index + 3]])
    if events[index] ~= events[index + 4] then redis.call('PEXPIRE', key, rest.life) end
  end
  local cut = rest.cut or {}
  for index = 1, #cut, 2 do redis.call('XTRIM', base .. ':e:' .. cut[index], 'MINID', cut[index + 1] + 1 .. '-0') end
  if rest.renew then
    for _, field in ipairs(redis.call('HKEYS', base)) do
      if string.sub(field, 1, 2) == 'l:' then redis.call('PEXPIRE', base .. ':e:' .. string.sub(field, 3), rest.life) end
    end
    for _, suffix in ipairs({'', ':k', ':q'}) do redis.call('PEXPIRE', base .. suffix, rest.life) end
  end
  local told = rest.told or {}
  for index = 1, #told, 2 do redis.call('PUBLISH', told[index], told[index + 1]) end
end
if after == ARGV[2] then return 1 end
return {after}

--## load: !no-writes
local time, n = redis.call('TIME'), redis.call('HGET', KEYS[1], 'n')
return {time[1], time[2], n, n and n ~= ARGV[1] and redis.call('HGETALL', KEYS[1])}

--## create:
local base = KEYS[1]
if redis.call('HEXISTS', base, 'n') == 1 then return 0 end
redis.call('DEL', base .. ':x', base .. ':k', base .. ':q')
redis.call('HSET', base, unpack(ARGV, 2))
redis.call('PEXPIRE', base, ARGV[1])
return 1

--## remove: !allow-oom
-- ARGV: exact, the closing's name, the closing, seconds until which streams are left, milliseconds for them, the rest, then bytes of it.
local base, rest = KEYS[1], cmsgpack.unpack(ARGV[6])
local n = redis.call('HGET', base, 'n')
if n ~= ARGV[1] then
  local closing = redis.call('GET', base .. ':x')
  return closing and string.sub(closing, 1, #ARGV[2]) == ARGV[2] and 1 or 0
end
local events, left, heads = rest.events, rest.left, {}
for index = 1, #events, 4 do
  redis.call('XADD', base .. ':e:' .. events[index], events[index + 1] .. '-0', 't', events[index + 2], 'd', ARGV[6 + events[index + 3]])
end
for index = 1, #left, 2 do heads[left[index]] = ARGV[6 + left[index + 1]] end
for _, field in ipairs(redis.call('HKEYS', base)) do
  local stream = string.sub(field, 1, 2) == 'l:' and string.sub(field, 3)
  if stream and not heads[stream] then redis.call('UNLINK', base .. ':e:' .. stream) end
end
redis.call('UNLINK', base, base .. ':k', base .. ':q')
for stream, head in pairs(heads) do
  redis.call('HSET', base, 'z:' .. stream, ARGV[4] .. ' ' .. head)
  redis.call('PEXPIRE', base .. ':e:' .. stream, ARGV[5])
end
redis.call('PEXPIRE', base, ARGV[5])
redis.call('SET', base .. ':x', ARGV[2] .. ARGV[3], 'PX', 600000)
for index = 1, #rest.told, 2 do redis.call('PUBLISH', rest.told[index], rest.told[index + 1]) end
return 1

--## drop: !allow-oom
-- Forget a session that cannot be read, without reading it; or the streams that a closing has left, if there is no session.
local base = KEYS[1]
if ARGV[1] == 'left' then
  if redis.call('HEXISTS', base, 'n') == 1 then return 0 end
  for _, field in ipairs(redis.call('HKEYS', base)) do redis.call('UNLINK', base .. ':e:' .. string.sub(field, 3)) end
  return redis.call('UNLINK', base)
end
return redis.call('UNLINK', base, base .. ':k', base .. ':q', base .. ':x')

--## closing: !allow-oom
-- The closing of a session; with an argument, it is forgotten.
if ARGV[1] then return redis.call('GETDEL', KEYS[1] .. ':x') end
return redis.call('GET', KEYS[1] .. ':x')

--## tell: !allow-oom
for index = 1, #ARGV, 2 do redis.call('PUBLISH', ARGV[index], ARGV[index + 1]) end
return 1

--## read: !no-writes
-- ARGV: stream, number, most events, most bytes, now. Reply the head, then number, tag and data of events, with the one of this number.
local base, stream, most = KEYS[1], ARGV[1], tonumber(ARGV[4])
local head = redis.call('HGET', base, 'l:' .. stream)
if not head then
  local ends, kept = string.match(redis.call('HGET', base, 'z:' .. stream) or '', '^(%S+) (.*)$')
  if not ends or tonumber(ends) <= tonumber(ARGV[5]) then return false end
  head = kept
end
local reply, size, count, first = {head}, 0, 0, ARGV[2] .. '-0'
for _, event in ipairs(redis.call('XRANGE', base .. ':e:' .. stream, first, '+', 'COUNT', tonumber(ARGV[3]) + 1)) do
  local is_cursor = event[1] == first
  if not is_cursor then
    size, count = size + #event[2][4], count + 1
    if count > 1 and (size > most or count > tonumber(ARGV[3])) then break end
  end
  reply[#reply + 1], reply[#reply + 2], reply[#reply + 3] = event[1], event[2][2], is_cursor and '' or event[2][4]
end
return reply

--## sizes: !no-writes
local reply = {}
for _, event in ipairs(redis.call('XRANGE', KEYS[1] .. ':e:' .. ARGV[1], '-', '+')) do
  reply[#reply + 1], reply[#reply + 2], reply[#reply + 3] = event[1], event[2][2], #event[2][4]
end
return reply
