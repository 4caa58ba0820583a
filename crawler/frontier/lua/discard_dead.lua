#!lua flags=allow-oom
-- discard_dead: delete dead letters. Their URLs stay seen and count as refused for the reason. Without a fence: an operator
-- may do it at any time. Idempotent.
-- KEYS  meta
-- ARGV  DiscardArgs
-- returns the number of deleted dead letters
local discarded = 0
for _, item in ipairs(cmsgpack.unpack(ARGV[DiscardArgs.letters])) do
  local dead = Losses.take_letter(item[LetterItem.fingerprint], item[LetterItem.seed])
  if dead then
    local r = record_of(item[LetterItem.queue])
    discarded = discarded + 1
    leave(State.DEAD, r, dead)
    enter(State.REFUSED, r, {seed = dead.seed, reason = ARGV[DiscardArgs.reason]})
    settle(r, 0, -1) -- an idle queue's record goes back to its store
  end
end
if discarded > 0 then close_call() end
return discarded
