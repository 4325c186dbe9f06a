-- Operations on state (cells.lua), and the beginning of scopes. One slot: the session's or the scope's.
-- A refusal ('full', 'room', 'gone', 'no integer') has changed nothing.

--## get: session kept cells !no-writes
if not load_owner() then return {'gone'} end
local packed = redis.call('HGET', base .. ':k', ARGV[5])
if not packed then return {'none'} end
local cell = cmsgpack.unpack(packed)
return {'ok', {}, cell[2], cell[1]}

--## set: session kept cells
local name, value, version = ARGV[6], ARGV[7] == '1' and ARGV[8], ARGV[9]
if not load_owner() then return {'gone'} end
local before = remembered(ARGV[5])
if before then return {'ok', {}, before} end
local cell = read_cell(name)
if version ~= '' and tonumber(version) ~= (cell and cell[1] or 0) then return remember(ARGV[5], -1) end
local refused = write_cell(name, cell, value, tonumber(ARGV[10]))
if refused then return refused end
return remember(ARGV[5], value and K.kv or 0)

--## add: session kept cells
local name, by = ARGV[6], ARGV[7]
if not load_owner() then return {'gone'} end
local before = remembered(ARGV[5])
if before then return {'ok', {}, before} end
local cell = read_cell(name)
local text = cell and cell[2] or '0'
if not (string.match(text, '^%-?[1-9]%d*$') or text == '0') then return {'no integer'} end
-- Lua counts in doubles; Redis counts 64 bits exactly.
redis.call('SET', base .. ':t', text)
local done = redis.pcall('INCRBY', base .. ':t', by)
local total = redis.call('GETDEL', base .. ':t')
if type(done) == 'table' then return {'no integer'} end
local refused = write_cell(name, cell, total, tonumber(ARGV[8]))
if refused then return refused end
return remember(ARGV[5], total)

--## open_scope: session kept cells
local packed = redis.call('GET', base .. ':s')
local scope = packed and cmsgpack.unpack(packed)
if scope and scope.due > now and scope.pr ~= ARGV[5] then return {'none'} end
if not scope or scope.due <= now then
  redis.call('DEL', base .. ':k', base .. ':o', base .. ':q')
  scope = {pr = ARGV[5], life = tonumber(ARGV[6]), kb = 0, kv = 0}
end
K, is_scope = scope, true
K.due = now + K.life
save_owner()
return {'ok', {}, K.due}

--## find_scope: session kept cells
local packed = redis.call('GET', base .. ':s')
K = packed and cmsgpack.unpack(packed)
if not K or K.due <= now or K.pr ~= ARGV[5] then return {'none'} end
is_scope = true
K.due = now + K.life
save_owner()
return {'ok', {}, K.due}

--## granted: session kept cells !allow-oom
-- The shared slot lets this session or handle keep so many bytes.
local bytes, count, step = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
if not load_owner() then return {'gone'} end
local known = K.av or 0
if count < known then return {'ok', {}} end
K.al = count > known and bytes or math.max(K.al or 0, bytes)
K.av, K.as = count, step
save_owner()
return {'ok', {}}
