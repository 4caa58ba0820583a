#!lua flags=allow-oom
-- visited: the request of a guest (see reserve) has ended. The owner sets the queue's time by its own clock when it looks next.
-- KEYS  meta
-- ARGV  queue, guest
-- returns {'COMMITTED'}
--@include _fence _shelf _idle _queue _guest
local r = record_of(ARGV[1])
if not r.guest or r.guest == ARGV[2] then
  set(r, 'guest', done_mark(ARGV[2]))
  set(r, 'guest_seen', nil)
end
close_queues()
return {'COMMITTED'}
