// A page of ordinary calls by the types that openapi-typescript generates. `run` compiles it strictly and runs it
// against a demo node.

import createClient from "openapi-fetch";
import type { components, paths } from "./api.js";

type Observation = components["schemas"]["ObserveBody"];
type ObservedLine = components["schemas"]["ObservedLine"];

declare const process: { argv: string[] };

const url = process.argv[2] ?? "";
const client = createClient<paths>({ baseUrl: url });
const films = { params: { path: { model: "demo" } } } as const;

/** The reply of a call, or the detail of its problem as an error. */
async function ok<T>(call: Promise<{ data?: T; error?: components["schemas"]["Problem"] }>): Promise<T> {
  const { data, error } = await call;
  if (data === undefined) throw new Error(error?.detail ?? "no reply");
  return data;
}

const predicted = await ok(
  client.POST("/v1/models/{model}/predict", { ...films, body: { user: "7", items: ["1", "2", 3] } }),
);
const scores: number[] = predicted.scores.map((score) => score.score);
if (scores.length !== 3) throw new Error("three scores were expected");

const ranked = await ok(
  client.POST("/v1/models/{model}/topk", {
    ...films,
    body: { user: "7", items: ["1", "2", "3"], k: 2, policy: { name: "thompson", alpha: 0.5 }, seed: 1 },
  }),
);
const byName = await ok(
  client.POST("/v1/models/{model}/topk", { ...films, body: { user: "7", items: ["1", "2"], k: 1, policy: "greedy" } }),
);
const policy: "greedy" | "thompson" | undefined =
  byName.policy.name === "greedy" || byName.policy.name === "thompson" ? byName.policy.name : undefined;

const recommended = await ok(
  client.POST("/v1/models/{model}/recommend", {
    ...films,
    body: {
      user: "7",
      k: 5,
      exclude_seen: { window: "30d", feedback: ["rating"] },
      filter: { all: [{ exists: { field: "title" } }, { not: { eq: { field: "genres", value: "War" } } }] },
    },
  }),
);
await ok(client.POST("/v1/models/{model}/recommend", { ...films, body: { user: "7", k: 5, exclude_seen: false } }));

const observed = await ok(
  client.POST("/v1/models/{model}/observe", {
    ...films,
    body: { user: "7", item: "1", label: 4, timestamp: "2026-01-02T03:04:05Z", decision_id: recommended.decision_id },
  }),
);
const joined: "slot" | "repeated" | "not_shown" | "other_user" | "expired" | "unknown" | undefined = observed.joined;

const lines: Observation[] = [
  { user: "8", item: "1", label: 4.5, timestamp: 1767323045000 },
  { user: "8", item: 2, label: 2, weight: 0.5, feedback: "rating" },
];
const streamed = await fetch(`${url}/v1/models/demo/observations`, {
  method: "POST",
  headers: { "content-type": "application/x-ndjson" },
  body: lines.map((line) => `${JSON.stringify(line)}\n`).join(""),
});
for (const text of (await streamed.text()).trim().split("\n")) {
  const line: ObservedLine = JSON.parse(text);
  if ("error" in line) throw new Error(`line ${line.line}: ${line.error.detail}`);
}

const item = { params: { path: { model: "demo", item: "ts-film" } } } as const;
const changed = await ok(
  client.PUT("/v1/models/{model}/items/{item}", {
    ...item,
    body: { attributes: { title: "A film", year: 1950, genres: ["Drama"], seen: false } },
  }),
);
const effective: "now" | "next_version" = changed.effective;
const attributes = (await ok(client.GET("/v1/models/{model}/items/{item}", item))).attributes;
const found = await ok(
  client.GET("/v1/models/{model}/items", { params: { path: { model: "demo" }, query: { q: "A film", limit: 10 } } }),
);

const model = await ok(
  client.PATCH("/v1/models/{model}", {
    ...films,
    body: { gate: { margin: 0.01, force: true }, triggers: { volume: { observations: 100_000 }, drift: null } },
  }),
);
const loss: "squared" | "logistic" | "implicit" = model.loss;
const { models } = await ok(client.GET("/v1/models"));
const names = models.map((known) => ("active_version" in known ? `${known.name} ${known.active_version}` : known.name));

const { job } = await ok(client.POST("/v1/models/{model}/retrain", { ...films, body: { why: "a page of calls" } }));
const { state } = await ok(client.GET("/v1/jobs/{job}", { params: { path: { job } } }));
const running: boolean = state === "queued" || state === "running";
const { versions } = await ok(client.GET("/v1/models/{model}/versions", films));
const passed = versions.filter((version) => version.gate?.verdict === "passed").length;

const { history } = await ok(
  client.GET("/v1/models/{model}/users/{user}", {
    params: { path: { model: "demo", user: "8" }, query: { history: 10 } },
  }),
);
const labels: number[] = history.map((event) => event.label);

const missing = await client.GET("/v1/models/{model}", { params: { path: { model: "missing" } } });
if (missing.error?.status !== 404) throw new Error("an unknown model should be a problem of status 404");

console.log({
  scores, slots: ranked.items.length, policy, joined, effective, attributes, found: found.items.length, loss, names,
  running, passed, labels,
});
