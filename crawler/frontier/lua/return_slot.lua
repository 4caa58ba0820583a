#!lua flags=allow-oom
-- visited: the request of a borrower (see reserve) has ended. The owner sets the queue's time by its own clock when it looks next.
-- KEYS  meta
-- ARGV  queue, borrower
-- returns {'COMMITTED'}
local r = record_of(ARGV[1])
if not r[MORE].borrower or r[MORE].borrower == ARGV[2] then
  set_more(r, 'borrower', done_mark(ARGV[2]))
  set_more(r, 'borrower_seen', nil)
end
close_queues()
return {'COMMITTED'}
