#!lua flags=allow-oom
-- recall: put all URLs of an origin that were set aside back into their queue with the next claims, or one of them as a probe.
-- Needs the fence. Idempotent.
-- KEYS  meta
-- ARGV  session, epoch, now (ms), queue, origin, when the next one goes back (ms; 0: all, with the next claim), 1: it answers
-- returns {'FENCED'} | {'COMMITTED', 1 if there were any}
if not fence(ARGV) then return {'FENCED'} end
local queue, origin, due = ARGV[FenceArgs.size + 1], ARGV[FenceArgs.size + 2], tonumber(ARGV[FenceArgs.size + 3])
local found = Aside.recall(queue, origin, due, ARGV[FenceArgs.size + 4] == '1')
write_queues()
return {'COMMITTED', found and 1 or 0}
