-- Operations on state, and the beginning of areas. A refusal ('full', 'room', 'gone', 'no integer') has changed nothing.

--## get: cells_prelude !no-writes
if not load_owner() then return {'gone'} end
local cell = read_cell(ARGV[5])
return cell and {'ok', {}, cell[2], cell[1]} or {'none'}

--## set: cells_prelude
local name, value, version = ARGV[6], ARGV[7] == '1' and ARGV[8], ARGV[9]
if not load_owner() then return {'gone'} end
local before = redis.call('HGET', base .. ':o', ARGV[5])
if before then return {'ok', {}, before} end
local cell = read_cell(name)
if version ~= '' and tonumber(version) ~= (cell and cell[1] or 0) then return remember(ARGV[5], -1) end
return write_cell(name, cell, value, tonumber(ARGV[10])) or remember(ARGV[5], value and K.kv or 0)

--## add: cells_prelude
local name, by = ARGV[6], ARGV[7]
if not load_owner() then return {'gone'} end
local before = redis.call('HGET', base .. ':o', ARGV[5])
if before then return {'ok', {}, before} end
local cell = read_cell(name)
local text = cell and cell[2] or '0'
if not (string.match(text, '^%-?[1-9]%d*$') or text == '0') then return {'no integer'} end
-- Lua counts in doubles; Redis counts 64 bits exactly.
redis.call('SET', base .. ':t', text)
local done = redis.pcall('INCRBY', base .. ':t', by)
local total = redis.call('GETDEL', base .. ':t')
if type(done) == 'table' then return {'no integer'} end
return write_cell(name, cell, total, tonumber(ARGV[8])) or remember(ARGV[5], total)

--## hold: cells_prelude !allow-oom
-- Keep room for a subscription of so many bytes, or (a negative number) give it back.
local bytes = tonumber(ARGV[5])
if not load_owner() then return {'gone'} end
local before = redis.call('HGET', base .. ':o', ARGV[3])
if before then return {'ok', {}, before} end
local room = ask_room(bytes)
if room then return room end
K.ub = math.max(0, (K.ub or 0) + bytes)
if bytes < 0 then give_back() end
return remember(ARGV[3], K.ub)

--## open_area: cells_prelude
is_area = true
local packed = redis.call('GET', base .. ':s')
K = packed and cmsgpack.unpack(packed)
if K and K.due > now and K.pr ~= ARGV[5] then return {'none'} end
if not K or K.due <= now then
  redis.call('DEL', base .. ':k', base .. ':o', base .. ':q')
  K = {pr = ARGV[5], life = tonumber(ARGV[6]), kb = 0, kv = 0}
end
K.due = now + K.life
save_owner()
return {'ok', {}, K.due}

--## find_area: cells_prelude
is_area = true
local packed = redis.call('GET', base .. ':s')
K = packed and cmsgpack.unpack(packed)
if not K or K.due <= now or K.pr ~= ARGV[5] then return {'none'} end
K.due = now + K.life
save_owner()
return {'ok', {}, K.due}

--## granted: cells_prelude !allow-oom
-- The shared slot lets this session or handle keep so many bytes.
local bytes, count, step = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
if not load_owner() then return {'gone'} end
local known = K.av or 0
if count < known then return {'ok', {}} end
K.al = count > known and bytes or math.max(K.al or 0, bytes)
K.av, K.as = count, step
save_owner()
return {'ok', {}}
