import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.languagetool.JLanguageTool;
import org.languagetool.Languages;
import org.languagetool.markup.AnnotatedText;
import org.languagetool.markup.AnnotatedTextBuilder;
import org.languagetool.rules.Rule;
import org.languagetool.rules.RuleMatch;

/**
 * Checks the grammar of Markdown files. Arguments: a file with the ids of rules that do not apply,
 * then the documents. Prints one line for each finding, and ends with 1 if there is one.
 */
public final class Grammar {
    /** Code and addresses, which stand for a name in their sentence, or for nothing. */
    private static final Pattern MARKUP = Pattern.compile(
            "(?<block>(?m:^ *```)[\\s\\S]*?(?m:^ *```)|(?m:^ *\\|.*$)|(?m:^    +.*$)|<!--[\\s\\S]*?-->)"
                    + "|(?<name>`[^`]*`|(?<=\\])\\([^)\\s]*\\)|https?://\\S+)"
                    + "|(?<sign>!(?=\\[)|[\\[\\]*_#>]+|(?m:^ *[-*] ))");

    private Grammar() {}

    public static void main(String[] arguments) throws Exception {
        Set<String> exempt = new TreeSet<>();
        for (String line : Files.readAllLines(Path.of(arguments[0]))) {
            String id = line.split("#")[0].strip();
            if (!id.isEmpty()) {
                exempt.add(id);
            }
        }
        JLanguageTool tool = new JLanguageTool(Languages.getLanguageForShortCode("en-GB"));
        for (Rule rule : tool.getAllRules()) {
            if (rule.isDictionaryBasedSpellingRule() || exempt.contains(rule.getId())) {
                tool.disableRule(rule.getId());
            }
        }
        int findings = 0;
        for (String name : List.of(arguments).subList(1, arguments.length)) {
            String text = Files.readString(Path.of(name));
            for (RuleMatch match : tool.check(annotated(text))) {
                findings++;
                System.out.println(name + ":" + describe(text, match));
            }
        }
        System.out.println((arguments.length - 1) + " documents, " + findings + " findings");
        System.exit(findings == 0 ? 0 : 1);
    }

    private static AnnotatedText annotated(String text) {
        AnnotatedTextBuilder builder = new AnnotatedTextBuilder();
        Matcher markup = MARKUP.matcher(text);
        int at = 0;
        while (markup.find()) {
            builder.addText(text.substring(at, markup.start()));
            boolean isName = markup.group("name") != null && markup.group().startsWith("`");
            builder.addMarkup(markup.group(), isName ? "Shunt" : "");
            at = markup.end();
        }
        return builder.addText(text.substring(at)).build();
    }

    private static String describe(String text, RuleMatch match) {
        int from = Math.min(match.getFromPos(), text.length());
        long line = text.substring(0, from).chars().filter(c -> c == '\n').count() + 1;
        int start = Math.max(0, from - 30);
        int end = Math.min(text.length(), match.getToPos() + 30);
        String place = text.substring(start, end).replaceAll("\\s+", " ");
        String message = match.getMessage().replaceAll("</?suggestion>", "'");
        return line + ": " + message + " [" + match.getRule().getId() + "] ..." + place + "...";
    }
}
