#!lua flags=allow-oom
-- count_items: change the numbers of items of queues and runs, whose pages were handled again; without a fence, because no
-- session works then. The changes of one id have numbers that only grow, and each counts once: `recounted` in meta has the id
-- and the last number.
-- KEYS  meta
-- ARGV  run, msgpack list of {number, queue, run or '', by how much}, id
-- returns how many of them did not count before
local known = call('HGET', ctx.meta_key, 'recounted')
local counted = known and list_of(known) or {}
local last, new = counted[1] == ARGV[3] and counted[2] or 0, 0
for _, one in ipairs(cmsgpack.unpack(ARGV[2])) do
  if one[1] > last then
    last, new = one[1], new + 1
    count(ctx.total, 'items', one[4])
    count_in(record_of(one[2]), 'items', one[4])
    if one[3] ~= '' then count_seed(one[3], RunCounts.items, one[4]) end
  end
end
if new > 0 then
  close_call()
  call('HSET', ctx.meta_key, 'recounted', cmsgpack.pack({ARGV[3], last}))
end
return new
