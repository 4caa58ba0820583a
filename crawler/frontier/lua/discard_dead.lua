#!lua flags=allow-oom
-- discard_dead: delete dead letters. Their URLs stay seen and count as refused for the reason. Without a fence: an operator
-- may do it at any time. Idempotent.
-- KEYS  meta
-- ARGV  reason, msgpack list of {fingerprint, queue, seed or run}
-- returns the number of deleted dead letters
local discarded = 0
for _, item in ipairs(cmsgpack.unpack(ARGV[2])) do
  local dead = Losses.take_letter(item[1], item[3])
  if dead then
    local r = record_of(item[2])
    discarded = discarded + 1
    leave(State.DEAD, r, dead)
    enter(State.REFUSED, r, {seed = item[3], reason = ARGV[1]})
    settle(r, 0, -1) -- an idle queue's record goes back to its store
  end
end
if discarded > 0 then close_call() end
return discarded
