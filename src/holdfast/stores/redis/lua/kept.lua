-- The kept data of a session or a handle, besides its streams: the fields of its state and its subscriptions. The
-- principal has one total for all of it (Limits.principal_kept_bytes), in the shared slot.
--
-- A script sees one slot, so it cannot read the total when it writes. Instead the shared slot grants each session and
-- handle an allowance, and a script lets it keep no more than that (K.al). Where the allowance is too small, the script
-- changes nothing and replies 'room'; the caller asks the shared slot (`grant`), tells the session (`granted`) and
-- sends its command again. It asks for a step more than it needs, so that not every field costs this. The sum of a
-- principal's grants never exceeds its total, so its kept data does not either.
--
-- A grant is a number of bytes, not a difference, so that it may be sent twice. Granted bytes that are no longer
-- needed are given back: the session lowers its own allowance first and reports it afterwards. These messages can
-- arrive in any order; each of them has K.av, which counts how often the session has lowered its allowance:
--   * `grant` never lowers, and replies with the newest count that the shared slot knows;
--   * a report counts in the shared slot only if its count is newer than the count known there;
--   * `granted` counts in the session only if its count is not older than the session's own.
-- So the shared slot always has at least the allowance of the session. A lost message leaves it with more than
-- that, until the session's next grant or report, or its end. Only a failover that loses writes of the shared slot can
-- leave it with less; the next grant or report corrects it.

--
-- K, of a session or handle:
--   kb, kn, kv    fields of state: bytes, number, last version
--   nsub, bsub    subscriptions, and their bytes
--   al, av, as    the allowance, how often it was lowered, and its step

local ENTRY = 256

local function kept()
  local k = keeps()
  return k.kb + (k.bsub or 0) + ENTRY * ((k.kn or 0) + (k.nsub or 0))
end

-- Whether so many bytes more need a larger allowance.
local function lacks(more) return more > 0 and kept() + more > (K.al or 0) end

-- The reply that asks for it: the bytes, the count, the principal, and how long the answer matters.
local function ask_room(more)
  local life = K.life or math.max(0, S.last - now) + S.il + S.gr + SLACK
  return {'room', {}, kept() + more, K.av or 0, K.pr or redis.call('HGET', base, 'pr'), life}
end

-- After something was forgotten: give back the bytes that are not needed, if they are more than two steps of allowances.
local function give_back()
  if K.al and K.al - kept() > 2 * K.as then
    K.al, K.av = kept() + K.as, K.av + 1
    todo[#todo + 1] = 'kept'
    todo[#todo + 1] = K.al
    todo[#todo + 1] = K.av
  end
end
