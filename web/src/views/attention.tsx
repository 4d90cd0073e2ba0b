/** Which past steps the model looks at. */

import { Figure, Heat } from "../charts";
import { attentionOf, model, stepLabels } from "../model";
import { Label, Lacking, Search } from "../parts";
import { choose, node } from "../state";
import { cut, figure } from "../text";

export function Attention() {
  const { mean_attention } = model.facts;
  const chosen = node.value;
  const own = chosen === null ? null : attentionOf(chosen);
  if (!mean_attention && !model.attention) {
    return <Lacking about={/attention/i}>This run has no temporal attention: its method does not weigh past windows.</Lacking>;
  }
  return (
    <>
      <header class="view-head">
        <h2>Temporal attention</h2>
        <p class="quiet">
          How much each window draws on itself and on those before it. Each row adds up to 1. Strong weights near the
          diagonal mean that recent windows count most; even weights mean that all count alike.
        </p>
      </header>
      <div class="own">
        <Search onChoose={choose} label="Choose a node" />
      </div>
      <div class="charts">
        {mean_attention ? (
          <Matrix title="All nodes" note="Mean" values={mean_attention} test="chart-attention" />
        ) : (
          <Lacking about={/attention/i}>The mean over all nodes is not on this page.</Lacking>
        )}
        <div>
          {chosen !== null && own && <Matrix title="The chosen node" values={own} test="chart-attention-node" note={cut(model.facts.labels[chosen], 80)} />}
          {chosen !== null && !own && (
            <Lacking about={/attention/i}>
              The attention of <Label node={chosen} length={60} /> is not on this page.
            </Lacking>
          )}
          {chosen === null && <p class="lacking">Choose a node to see its own attention beside the mean.</p>}
        </div>
      </div>
    </>
  );
}

function Matrix(props: { title: string; note: string; values: (number | null)[][]; test: string }) {
  const { title, note, values, test } = props;
  const labels = stepLabels();
  // The first windows have little to choose from, and their large weights would leave all others pale.
  const telling = values.length > 4 ? values.slice(3) : values;
  const max = telling.flat().reduce<number>((most, value) => Math.max(most, value ?? 0), 0);
  const isCut = values.flat().some((value) => value !== null && value > max);
  return (
    <Figure
      title={title}
      note={note}
      test={test}
      table={{
        head: ["Window", ...labels],
        rows: values.map((row, i) => [labels[i], ...row]),
        format: figure,
      }}
    >
      <Heat
        label={`${title}: attention of each window to those before`}
        rows={labels}
        columns={labels}
        values={values}
        max={max}
        isCut={isCut}
        format={(value) => value.toFixed(2)}
        rowName="Window"
        columnName="attends to"
      />
    </Figure>
  );
}
