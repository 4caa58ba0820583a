// One run of a job: what became of it, and what it ran with.

import { ApiError, Repeater, get } from "./api.js";
import { $, facts, show, tell, text } from "./dom.js";
import { jobAddress, kindOf } from "./job_parts.js";

const EVERY_MS = 2000;

export function runView() {
  let name = "";
  const repeater = new Repeater(look, EVERY_MS);

  async function look(signal) {
    let run;
    try {
      run = await get(`/v1/runs/${encodeURIComponent(name)}`, signal);
    } catch (error) {
      if (!(error instanceof ApiError) || !error.status || error.status >= 500) throw error;
      text($("run-sentence"), `${error.message}.`);
      show($("run-body"), false);
      show($("run-state"), false);
      return;
    }
    if (!signal.aborted) draw(run);
  }

  function draw(run) {
    ["run-body", "run-state"].forEach((id) => show($(id), true));
    text($("run-state"), run.row.result);
    $("run-state").dataset.state = kindOf(run.row);
    $("run-job").href = jobAddress({ user: run.user, name: run.job });
    text($("run-job"), `${run.job}, of user ${run.user}`);
    tell($("run-sentence"), run.sentence);
    facts($("run-facts"), run.facts);
  }

  return {
    start(argument) {
      if (argument !== name) {
        name = argument;
        text($("t-run"), name);
        text($("run-sentence"), "Reading ...");
        text($("run-job"), "");
        ["run-body", "run-state"].forEach((id) => show($(id), false));
      }
      repeater.start();
    },
    stop: () => repeater.stop(),
  };
}
