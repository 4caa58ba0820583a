#!lua flags=allow-oom
-- return_slot: the request of a borrower (see borrow_slot) has ended. The owner moves the queue's clock when it next sees the
-- mark.
-- KEYS  meta
-- ARGV  ReturnSlotArgs
-- returns {'COMMITTED'}
local r = record_of(ARGV[ReturnSlotArgs.queue])
if not r[MORE].borrower or r[MORE].borrower == ARGV[ReturnSlotArgs.borrower] then
  set_more(r, 'borrower', done_mark(ARGV[ReturnSlotArgs.borrower]))
  set_more(r, 'borrower_seen', nil)
end
close_call()
return {'COMMITTED'}
