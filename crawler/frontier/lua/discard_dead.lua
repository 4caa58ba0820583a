#!lua flags=allow-oom
-- discard: dead letters are thrown away; their URLs stay seen, and are refused from here on, counted by a reason. Needs
-- no fence: people do it, at any time. Idempotent.
-- KEYS  meta
-- ARGV  reason, msgpack list of {fingerprint, queue, seed}
-- returns how many
local discarded, reason = 0, 'refused:' .. ARGV[1]
for _, item in ipairs(cmsgpack.unpack(ARGV[2])) do
  if call('HDEL', P .. 'dead', item[1]) == 1 then
    local r = record_of(item[2])
    discarded = discarded + 1
    count_seed(item[3], DEAD, -1)
    count_seed(item[3], DONE, 1)
    count_in(r, 'dead', -1)
    count_in(r, reason, 1)
    settle(r, 0, 0, -1) -- an idle one goes back to its store
  end
end
if discarded == 0 then return 0 end
close_queues()
write_seeds()
bump(M, {dead = -discarded, [reason] = discarded})
return discarded
