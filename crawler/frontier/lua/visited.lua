#!lua flags=allow-oom
-- visited: the request of a guest (see reserve) has ended. The owner sets the queue's time by its own clock when it looks next.
-- KEYS  meta
-- ARGV  queue, guest
-- returns {'COMMITTED'}
local r = record_of(ARGV[1])
if not r[MORE].guest or r[MORE].guest == ARGV[2] then
  set_more(r, 'guest', done_mark(ARGV[2]))
  set_more(r, 'guest_seen', nil)
end
close_queues()
return {'COMMITTED'}
