#!lua flags=allow-oom
-- recall: put all URLs of an origin that were set aside back into the queue with the next claims. Needs the fence. Idempotent.
-- KEYS  meta
-- ARGV  session, epoch, now (ms), queue, origin, 1: it answers; 0: its URLs are to be given up
-- returns {'FENCED'} | {'COMMITTED', 1 if there were any}
if not fence(ARGV) then return {'FENCED'} end
local queue, origin = ARGV[FenceArgs.size + 1], ARGV[FenceArgs.size + 2]
local found = Aside.recall(queue, origin, ARGV[FenceArgs.size + 3] == '1')
write_queues()
return {'COMMITTED', found and 1 or 0}
