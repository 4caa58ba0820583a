#!lua flags=allow-oom
-- forget_queue: drop the record of a queue of a domain that the crawl forgets. Nothing of it waits any more, and no instance
-- runs. What it still has of pages are those that no index line made unseen again: they stay in the totals, counted apart. So
-- where their lines come to light later, and are taken out then, that number falls by them. Without a fence. Idempotent.
-- KEYS  meta
-- ARGV  ForgetQueueArgs
-- returns how many pages stay in the totals
local queue = ARGV[ForgetQueueArgs.queue]
local r = record_of(queue)
local pages = r[S2]
for _, class in ipairs({0, 1, 3, 4, 5}) do pages = pages + (r[MORE]['s' .. class] or 0) end
if r[URLS] ~= 0 then count(ctx.total, 'queues', -1) end
if pages ~= 0 then count(ctx.total, 'forgotten', pages) end
call('DEL', r.key)
ctx.records[queue] = nil
close_call()
return pages
