// The view "Try it": a ranking for a user, the user's answers, and how far off the predictions were.

import * as api from './api.js';
import { Card } from './card.js';
import { ContextBar } from './context.js';
import { announce, byId, element } from './dom.js';
import { ErrorChart } from './error.js';
import { showMissing } from './features.js';
import { count, plural } from './format.js';
import { PolicyMenu } from './policies.js';
import { Ranking } from './ranking.js';
import { showRatings } from './ratings.js';
import { segmentOf } from './selection.js';
import { rememberUser } from './users.js';

const ROWS = 25;
const ROWS_MAX = 500;
const GHOSTS = 8;
/** The most candidates that one request may carry. */
const CANDIDATES_MAX = 10_000;
/** The maximum of the service, because all rated items leave the ranking; only the newest are drawn. */
const HISTORY_MAX = 10_000;
const EVENTS_MAX = 200;
const TYPING_MS = 120;
/** The window of the loss of all users. */
const WINDOW = 1000;

export class Try {
  #session;
  #guarded;
  #ranking;
  #card;
  #policies;
  #context;
  #errors = new ErrorChart();
  #history = [];
  #rated = new Set();
  /** Items whose answer was sent but not acknowledged yet. */
  #sending = new Set();
  #epoch = 0;
  #tag = null;
  #query = '';
  #rows = ROWS;
  #decision = null;
  /** The context of the ranking that is shown, or null. */
  #rankedIn = null;
  #asked = null;
  #everyone = null;
  #typing;

  /** `guarded(work)` runs `work` and displays its errors; `remember()` puts what is shown into the address. */
  constructor(session, { guarded, remember }) {
    this.#session = session;
    this.#guarded = guarded;
    this.#card = new Card(guarded);
    this.#ranking = new Ranking(byId('ranking'), {
      rate: (item, label) => this.#rate(item, label),
      explain: (item) => this.explain(item),
    });
    this.#policies = new PolicyMenu(() => guarded(() => this.#rank()));
    this.#context = new ContextBar(() => {
      remember();
      guarded(() => this.#rankInContext());
    });
    this.#listen();
  }

  #listen() {
    byId('search').addEventListener('input', (event) => {
      clearTimeout(this.#typing);
      this.#typing = setTimeout(() => {
        this.#query = event.target.value.trim();
        this.#rows = ROWS;
        this.#guarded(() => this.#rank());
      }, TYPING_MS);
    });
    byId('more').addEventListener('click', () => {
      this.#rows = Math.min(this.#rows + ROWS, ROWS_MAX);
      // The same seed repeats the same draw, so the rows above do not change.
      this.#guarded(() => this.#rank({ seed: this.#decision.seed }));
    });
  }

  /** The context of the rankings, or null. */
  get context() {
    return this.#context.value;
  }

  /** Sets the context that the address asks for, before a model is open. */
  set context(context) {
    this.#context.set(context);
  }

  /** Shows the fields that contexts of the stream have had so far. */
  offerContext() {
    this.#context.offer(this.#session.learner.stream, this.#session.contextFields);
  }

  /** Opens the card of an item. */
  explain(item) {
    const { learner, user, catalog, feedback } = this.#session;
    return this.#card.open(item, { model: learner.name, user, epoch: this.#epoch, catalog, feedback });
  }

  /** Shows placeholders while a model is loading. */
  wait() {
    this.#ranking.wait(GHOSTS);
    byId('nothing').hidden = true;
    byId('ranking').setAttribute('aria-busy', 'true');
  }

  /** The caption of the ranking. */
  say(words) {
    byId('status').textContent = words;
  }

  /** Shows the model of the session from the start. */
  async openModel() {
    this.#tag = null;
    this.#showTags();
    this.#policies.offer(this.#session.model);
    await this.openUser();
  }

  /** Shows the user of the session from the start. */
  async openUser() {
    this.#rows = ROWS;
    this.#epoch = 0;
    this.#decision = null;
    this.#rankedIn = null;
    this.#history = [];
    this.#rated = new Set();
    this.#sending = new Set();
    byId('whose').textContent = this.#session.user;
    await this.refresh({ moves: false });
  }

  /** Fetches and shows everything of the user again, for example because another version serves. */
  async refresh({ moves = true } = {}) {
    this.#showScale();
    await this.#refreshUser();
    await this.#rank({ moves });
  }

  // --- asking ------------------------------------------------------------------------------------------------------

  /** Ranks in the context that was just set, and says what that has moved. */
  #rankInContext() {
    // Where chance decides, the same seed repeats the same draw, so that only the context moves items.
    const drawn = this.#policies.chance || this.#session.isSelection;
    return this.#rank({ moves: true, seed: drawn ? this.#decision?.seed : undefined, report: reportOf });
  }

  /**
   * Ranks the items that match the filter. A newer request aborts an older one. `report(changes)` words the movements, for
   * rankings in another context.
   */
  async #rank({ moves = false, seed, report = () => '' } = {}) {
    this.#asked?.abort();
    const asked = new AbortController();
    this.#asked = asked;
    const { model, catalog, feedback, user, untrained } = this.#session;
    const matching = catalog.select({ tag: this.#tag, query: this.#query, rated: this.#rated });
    const list = byId('ranking');
    list.setAttribute('aria-busy', 'true');
    const started = performance.now();
    const segment = segmentOf(model);
    const context = this.#context.value;
    const body = {
      user,
      k: this.#rows,
      policy: this.#policies.value,
      min_epoch: this.#epoch,
      ...(seed === undefined ? {} : { seed }),
      ...(segment === null ? {} : { segment }),
      ...(context === null ? {} : { context }),
    };
    try {
      const reply = await this.#bestOf(matching, body, asked.signal);
      this.#decision = reply;
      this.#rankedIn = context;
      const { items } = reply;
      const changes = this.#ranking.show(items, { catalog, feedback, moves, chance: this.#policies.chance });
      this.#context.accepted(report(changes));
      showMissing(reply.missing);
      // Equal scores are no ranking: a model that was never trained may have nothing else.
      const equal = items.every((slot) => slot.score === items[0].score);
      list.classList.toggle('unscored', untrained && equal);
      byId('nothing').hidden = items.length > 0;
      if (items.length === 0) byId('nothing').textContent = this.#whyNothing(reply);
      const among = Math.max(matching.length, items.length);
      byId('more').hidden = items.length >= among || items.length < this.#rows || this.#rows >= ROWS_MAX;
      const took = Math.round(performance.now() - started);
      this.say(items.length ? `${plural(among, 'item')} ranked in ${took} ms${circumstances(reply)}` : '');
      list.dataset.epoch = reply.user_epoch;
      list.setAttribute('aria-busy', 'false');
    } catch (problem) {
      // An aborted request leaves the list to the request that replaced it.
      if (problem.name === 'AbortError') return;
      this.#withoutRanking();
      if (!this.#context.refused(problem)) throw problem;
    }
  }

  /**
   * The best items that the user has not answered for. Text search happens on the page, and selections only rank given
   * items: in these cases the matching items are sent.
   */
  #bestOf(matching, body, signal) {
    const { model, catalog } = this.#session;
    if (this.#query || model.kind === 'selection') {
      if (matching.length === 0) return { items: [], user_epoch: this.#epoch };
      const k = Math.min(body.k, matching.length);
      return api.topk(model.name, { ...body, k, items: matching.slice(0, CANDIDATES_MAX) }, signal);
    }
    const filter = this.#tag === null ? {} : { filter: { eq: { field: catalog.tagField, value: this.#tag } } };
    return api.recommend(model.name, { ...body, ...filter, exclude: [...this.#sending] }, signal);
  }

  #whyNothing({ reason_detail: reason }) {
    const { learner, catalog, untrained } = this.#session;
    if (this.#query) return `No item without an answer matches “${this.#query}”.`;
    if (this.#tag !== null) return `You have answered for every item of ${this.#tag}.`;
    if (reason) return reason;
    if (catalog.total > 0) return 'You have answered for every item.';
    if (learner.observations === 0) return 'There is nothing to rank yet: send observations or describe items.';
    return untrained
      ? `${plural(learner.observations, 'observation')} arrived, and the first training makes their items known.`
      : 'The catalog is empty.';
  }

  #withoutRanking() {
    byId('ranking').setAttribute('aria-busy', 'false');
    if (this.#ranking.order.length > 0) return;
    const { catalog, feedback } = this.#session;
    this.#ranking.show([], { catalog, feedback, moves: false, chance: false });
    byId('nothing').textContent =
      'There is no ranking to show. Choose something else, or reload the page to try again.';
    byId('nothing').hidden = false;
    byId('more').hidden = true;
    this.say('');
  }

  async #refreshUser() {
    const { user, learner, catalog, feedback, isSelection } = this.#session;
    const [reply, quality] = await Promise.all([
      api.getUser(learner.name, user, HISTORY_MAX),
      isSelection ? null : api.getQuality(learner.name),
    ]);
    if (user !== this.#session.user || learner.name !== this.#session.learner.name) return;
    // A corrected observation has its new label, and a deleted one is not in the history.
    this.#history = reply.history.filter((event) => event.kind === 'observe');
    this.#epoch = Math.max(this.#epoch, reply.user_epoch);
    for (const { item } of this.#history) this.#rated.add(item);
    this.#everyone = quality?.windows.find((window) => window.observations === WINDOW)?.value ?? null;
    const latest = this.#history.slice(0, EVENTS_MAX);
    showRatings(latest, { total: reply.observations, catalog, feedback });
    this.#errors.show(latest, { everyone: this.#everyone, title: (item) => catalog.get(item).name, feedback });
  }

  // --- doing -------------------------------------------------------------------------------------------------------

  #rate(item, label) {
    const place = this.#ranking.focusedPlace();
    this.#ranking.mark(item, label);
    // Added before the reply, so that a ranking after another answer does not contain it.
    this.#rated.add(item);
    this.#sending.add(item);
    return this.#guarded(async () => {
      const { model, user } = this.#session;
      const decision = this.#decision;
      const shown = decision?.logged && decision.items.some((slot) => slot.item === item);
      const joined = shown ? { decision_id: decision.decision_id } : {};
      const context = this.#rankedIn === null ? {} : { context: this.#rankedIn };
      let reply;
      try {
        reply = await api.observe(model.name, { user, item, label, ...joined, ...context });
      } catch (problem) {
        this.#ranking.mark(item, null);
        this.#rated.delete(item);
        throw problem;
      } finally {
        this.#sending.delete(item);
      }
      if (user !== this.#session.user) return;
      rememberUser(user);
      this.#epoch = Math.max(this.#epoch, reply.user_epoch);
      this.#announce(item, label, reply.predicted);
      await Promise.all([this.#rank({ moves: true }), this.#refreshUser()]);
      if (place !== null) this.#ranking.focus(place);
    });
  }

  #announce(item, label, predicted) {
    const { catalog, feedback } = this.#session;
    const guess = typeof predicted === 'number' ? `, predicted ${feedback.value(predicted)}` : '';
    announce(`${catalog.get(item).name}: ${feedback.words(label)}${guess}. The ranking has changed.`);
  }

  // --- showing -----------------------------------------------------------------------------------------------------

  #showTags() {
    const chip = (tag, words) =>
      element('button', { type: 'button', class: 'chip', onclick: () => this.#pickTag(tag) }, words);
    const tags = this.#session.catalog.tags();
    byId('genres').hidden = tags.length === 0;
    byId('genres').setAttribute('aria-label', this.#session.catalog.tagField ?? 'tags');
    byId('genres').replaceChildren(chip(null, 'All'), ...tags.map((tag) => chip(tag, tag)));
    this.#pressTag();
  }

  #pickTag(tag) {
    this.#tag = tag;
    this.#rows = ROWS;
    this.#pressTag();
    return this.#guarded(() => this.#rank());
  }

  #pressTag() {
    const pressed = this.#tag ?? 'All';
    for (const chip of byId('genres').children) chip.setAttribute('aria-pressed', String(chip.textContent === pressed));
  }

  /** The scale above the bars, in the form of the labels. */
  #showScale() {
    const { feedback } = this.#session;
    const ticks = feedback.ticks.map(({ at, text }) => {
      const tick = element('i', {}, text);
      tick.style.setProperty('--at', at);
      return tick;
    });
    byId('scale').replaceChildren(...ticks);
    byId('scale-figures').textContent = feedback.kind === 'thumbs' ? 'probability' : 'score ± error';
    byId('legend-answer').textContent = feedback.heading;
    byId('ranked').dataset.feedback = feedback.kind;
  }
}

/** How many items a change has moved, in words. */
function reportOf(changes) {
  const moves = [...changes.values()];
  const [up, down] = [moves.filter((move) => move > 0).length, moves.filter((move) => move < 0).length];
  if (up + down === 0) return 'Ranked again: no item has moved.';
  return `Ranked again: ${plural(up, 'item')} up, ${count(down)} down.`;
}

function circumstances({ arm, arms, cold, pool }) {
  if (arm) return ` · by ${arm}`;
  if (arms) return ` · by ${count(arms.length)} models together`;
  if (pool) return ' · drawn at random for the validation pool';
  return cold ? ' · as for the average user' : '';
}
