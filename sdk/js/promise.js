// Promises whose callbacks run when `drain` says so. An export of a component has to return its value, and the engine's
// own promises go on only when it has returned. They take the place of the engine's: `async` functions are compiled to
// use the global Promise.

const jobs = [];

/** Runs all callbacks that are due. */
export function drain() {
  for (let job = jobs.shift(); job; job = jobs.shift()) job();
}

class OwnPromise {
  #state = 'pending';
  #value;
  #callbacks = [];

  constructor(executor) {
    const [resolve, reject] = this.#settlers();
    try {
      executor(resolve, reject);
    } catch (error) {
      reject(error);
    }
  }

  // The first call of either counts.
  #settlers() {
    let isCalled = false;
    const once = (settle) => (value) => {
      if (isCalled) return;
      isCalled = true;
      settle(value);
    };
    return [once((value) => this.#resolve(value)), once((error) => this.#settle('rejected', error))];
  }

  #resolve(value) {
    if (value === this) return this.#settle('rejected', new TypeError('a promise cannot wait for itself'));
    let then;
    try {
      then = value !== null && (typeof value === 'object' || typeof value === 'function') ? value.then : undefined;
    } catch (error) {
      return this.#settle('rejected', error);
    }
    if (typeof then !== 'function') return this.#settle('fulfilled', value);
    jobs.push(() => {
      const [resolve, reject] = this.#settlers();
      try {
        then.call(value, resolve, reject);
      } catch (error) {
        reject(error);
      }
    });
  }

  #settle(state, value) {
    this.#state = state;
    this.#value = value;
    jobs.push(...this.#callbacks.splice(0));
  }

  then(fulfilled, rejected) {
    return new OwnPromise((resolve, reject) => {
      const callback = () => {
        const isFulfilled = this.#state === 'fulfilled';
        const handler = isFulfilled ? fulfilled : rejected;
        if (typeof handler !== 'function') return isFulfilled ? resolve(this.#value) : reject(this.#value);
        try {
          resolve(handler(this.#value));
        } catch (error) {
          reject(error);
        }
      };
      (this.#state === 'pending' ? this.#callbacks : jobs).push(callback);
    });
  }

  catch(rejected) {
    return this.then(undefined, rejected);
  }

  finally(callback) {
    const after = (then) => (value) => OwnPromise.resolve(callback()).then(() => then(value));
    return this.then(after((value) => value), after((error) => OwnPromise.reject(error)));
  }

  static resolve(value) {
    return value instanceof OwnPromise ? value : new OwnPromise((resolve) => resolve(value));
  }

  static reject(error) {
    return new OwnPromise((_, reject) => reject(error));
  }

  static withResolvers() {
    const made = {};
    made.promise = new OwnPromise((resolve, reject) => Object.assign(made, { resolve, reject }));
    return made;
  }

  static all(promises) {
    return new OwnPromise((resolve, reject) => {
      const values = [...promises];
      let left = values.length;
      if (left === 0) resolve([]);
      values.forEach((promise, position) => {
        const one = (value) => {
          values[position] = value;
          left -= 1;
          if (left === 0) resolve(values);
        };
        OwnPromise.resolve(promise).then(one, reject);
      });
    });
  }

  static allSettled(promises) {
    const settled = (promise) =>
      OwnPromise.resolve(promise).then(
        (value) => ({ status: 'fulfilled', value }),
        (reason) => ({ status: 'rejected', reason }),
      );
    return OwnPromise.all([...promises].map(settled));
  }

  static race(promises) {
    return new OwnPromise((resolve, reject) => {
      for (const promise of promises) OwnPromise.resolve(promise).then(resolve, reject);
    });
  }

  static any(promises) {
    const all = [...promises];
    const turned = all.map((promise) => OwnPromise.resolve(promise).then((value) => Promise.reject(value), (e) => e));
    return OwnPromise.all(turned).then(
      (errors) => OwnPromise.reject(new AggregateError(errors, 'all promises were rejected')),
      (value) => value,
    );
  }
}

globalThis.Promise = OwnPromise;
