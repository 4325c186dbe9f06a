-- Turns, for `in_order` (order.lua). One slot: the session's. Asking changes nothing; holding and passing on set or remove
-- one entry with the fence of its call, so that a command that is sent again, or late, changes nothing more.

--## turn: session log order !no-writes
local stream, fence = ARGV[5], tonumber(ARGV[6])
load()
if not S then return {'gone'} end
local c, why = writable(stream, fence)
if not c then return {why} end
return {'ok', {}, first() == stream and 1 or 0}

--## hold_turn: session log order !allow-oom
local stream, fence = ARGV[5], tonumber(ARGV[6])
load()
if not S then return {'gone'} end
local c, why = writable(stream, fence)
if not c then return {why} end
local held = held_turns()
held[stream] = {f = fence, o = me}
write_held(held)
save()
return {'ok', {}}

--## pass_turn: session order !allow-oom
-- Reply the call whose turn it is, if this replica runs it; another replica is woken up.
local stream, fence = ARGV[5], tonumber(ARGV[6])
load()
if not S then return {'gone'} end
local held = held_turns()
if held[stream] and held[stream].f == fence then
  held[stream] = nil
  write_held(held)
  save()
end
local name, c = first()
if not name then return {'ok', {}, ''} end
publish(c.own, 'turn', name)
return {'ok', {}, c.own == me and name or ''}
