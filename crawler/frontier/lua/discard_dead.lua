#!lua flags=allow-oom
-- discard_dead: delete dead letters. Their URLs stay seen and count as refused for the reason. Without a fence: an operator
-- may do it at any time. Idempotent.
-- KEYS  meta
-- ARGV  reason, msgpack list of {fingerprint, queue, seed or run}
-- returns the number of deleted dead letters
local discarded, reason = 0, 'refused:' .. ARGV[1]
for _, item in ipairs(cmsgpack.unpack(ARGV[2])) do
  local letter = call('HGET', ctx.prefix .. 'dead', item[1])
  if letter then
    Losses.uncount_dead(letter)
    call('HDEL', ctx.prefix .. 'dead', item[1])
    local r = record_of(item[2])
    discarded = discarded + 1
    count_seed(item[3], DEAD, -1)
    count_seed(item[3], DONE, 1)
    count_run(item[3], RunCounts.refused, 1)
    count_in(r, 'dead', -1)
    count_in(r, reason, 1)
    settle(r, 0, 0, -1) -- an idle queue's record goes back to its store
  end
end
if discarded == 0 then return 0 end
count(ctx.total, 'dead', -discarded)
count(ctx.total, reason, discarded)
close_call()
return discarded
