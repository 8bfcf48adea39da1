package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// allowed are the licences that shipped programs may have parts under, by their SPDX names. All of them let programs be passed
// on under the Apache License 2.0, with their texts beside them. MPL-2.0 asks besides that the source of its own files can be had, which a
// pinned module of the Go proxy is, unchanged.
var allowed = []string{"0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "ISC", "MIT", "MPL-2.0", "Unlicense"}

// template is a licence as words, in parts: what stands between them, such as names, differs.
type template struct {
	name  string
	parts []string
	// between is what may stand between one part and the next. Of long licences, which have none, anything may.
	between []string
	// most is how many words there may be besides: copyright lines, names and titles.
	most int
}

// What may stand between the parts of short licences. A condition that is added there makes it another licence.
const (
	nothing    = `^ *$`
	number     = `^ ([0-9a-c] )?$`
	bsdNeither = `^ ([0-9a-c] )?neither (the )?name of (\S+ ){1,12}nor the names of its contributors $`
	bsdBy      = `^ this software is provided by the (copyright|copyight) holders and contributors $`
	bsdWhose   = `^ the (regents|copyright holder|copyright holders|copyright owner) or contributors $`
	mitWhose   = `^ authors or copyright holders $`
)

// telling are phrases of clauses that licences are restricted by, and restricting are words that none of the copyright
// lines and titles beside a short licence has.
var (
	telling = []string{
		"commons clause", "right to sell", "be sold", "for good", "not evil", "advertising materials", "following acknowledgment", "following acknowledgement",
		"non commercial", "noncommercial", "ethical", "military", "not be used for",
	}
	restricting = []string{
		"may", "must", "shall", "not", "only", "unless", "except", "provided", "condition", "conditions", "restriction", "restrictions", "restricted",
		"prohibited", "forbidden", "commercial", "evaluation", "sell", "advertising",
	}
)

// aside is how many words a short licence may have besides its own.
const aside = 90

const (
	bsdGrant   = "redistribution and use in source and binary forms with or without modification are permitted provided that the following conditions are met"
	bsdSource  = "redistributions of source code must retain the above copyright notice this list of conditions and the following disclaimer"
	bsdBinary  = "redistributions in binary form must reproduce the above copyright notice this list of conditions and the following disclaimer in the documentation and or other materials provided with the distribution"
	bsdNames   = "may be used to endorse or promote products derived from this software without specific prior written permission"
	bsdNoNames = "the names of its contributors may not be used to endorse or promote products derived from this software without specific prior written permission"
	bsdAsIs    = "as is and any express or implied warranties including but not limited to the implied warranties of merchantability and fitness for a particular purpose are disclaimed in no event shall"
	bsdDamage  = "be liable for any direct indirect incidental special exemplary or consequential damages including but not limited to procurement of substitute goods or services loss of use data or profits or business interruption however caused and on any theory of liability whether in contract strict liability or tort including negligence or otherwise arising in any way out of the use of this software even if advised of the possibility of such damage"
)

// templates are tried in order. One whose parts are those of another and more comes before it.
var templates = []template{
	{"BSD-3-Clause", []string{bsdGrant, bsdSource, bsdBinary, bsdNames, bsdAsIs, bsdDamage}, []string{number, number, bsdNeither, bsdBy, bsdWhose}, aside},
	{"BSD-3-Clause", []string{bsdGrant, bsdSource, bsdBinary, bsdNoNames, bsdAsIs, bsdDamage}, []string{number, number, number, bsdBy, bsdWhose}, aside},
	{"BSD-2-Clause", []string{bsdGrant, bsdSource, bsdBinary, bsdAsIs, bsdDamage}, []string{number, number, bsdBy, bsdWhose}, aside},
	{"MIT", []string{
		"permission is hereby granted free of charge to any person obtaining a copy of this software and associated documentation files the software to deal in the software without restriction including without limitation the rights to use copy modify merge publish distribute sublicense and or sell copies of the software and to permit persons to whom the software is furnished to do so subject to the following conditions",
		"the above copyright notice and this permission notice shall be included in all copies or substantial portions of the software",
		"the software is provided as is without warranty of any kind express or implied including but not limited to the warranties of merchantability fitness for a particular purpose and noninfringement in no event shall the",
		"be liable for any claim damages or other liability whether in an action of contract tort or otherwise arising from out of or in connection with the software or the use or other dealings in the software",
	}, []string{nothing, nothing, mitWhose}, aside},
	{"ISC", []string{
		"permission to use copy modify and or distribute this software for any purpose with or without fee is hereby granted provided that the above copyright notice and this permission notice appear in all copies",
		"the software is provided as is and the author disclaims all warranties with regard to this software including all implied warranties of merchantability and fitness in no event shall the author be liable for any special direct indirect or consequential damages or any damages whatsoever resulting from loss of use data or profits whether in an action of contract negligence or other tortious action arising out of or in connection with the use or performance of this software",
	}, []string{nothing}, aside},
	{"ISC", []string{
		"permission to use copy modify and distribute this software for any purpose with or without fee is hereby granted provided that the above copyright notice and this permission notice appear in all copies",
		"the software is provided as is and the author disclaims all warranties with regard to this software including all implied warranties of merchantability and fitness in no event shall the author be liable for any special direct indirect or consequential damages or any damages whatsoever resulting from loss of use data or profits whether in an action of contract negligence or other tortious action arising out of or in connection with the use or performance of this software",
	}, []string{nothing}, aside},
	// Of long ones each section is looked for.
	{"Apache-2.0", []string{
		"terms and conditions for use reproduction and distribution", "1 definitions", "2 grant of copyright license", "3 grant of patent license", "4 redistribution",
		"5 submission of contributions", "6 trademarks", "7 disclaimer of warranty", "8 limitation of liability", "9 accepting warranty or additional liability",
	}, nil, 1700},
	{"Apache-2.0", []string{
		"licensed under the apache license version 2 0 the license you may not use this file except in compliance with the license you may obtain a copy of the license at",
		"unless required by applicable law or agreed to in writing software distributed under the license is distributed on an as is basis without warranties or conditions of any kind either express or implied see the license for the specific language governing permissions and limitations under the license",
	}, nil, aside},
	{"CC0-1.0", []string{
		"cc0 1 0 universal", "statement of purpose", "1 copyright and related rights", "2 waiver", "3 public license fallback", "4 limitations and disclaimers",
	}, nil, 1080},
	{"MPL-2.0", []string{
		"mozilla public license version 2 0", "1 definitions", "2 license grants and conditions", "3 responsibilities", "4 inability to comply due to statute or regulation",
		"5 termination", "6 disclaimer of warranty", "7 limitation of liability", "8 litigation", "9 miscellaneous", "10 versions of the license", "exhibit a source code form license notice",
	}, nil, 2700},
}

// looked are files that are none of the templates, by the sum of their words: somebody has read them. A file that changes is to be read
// again.
var looked = map[string]string{}

// words are those of a text, in lower case, with single spaces between them and around.
func words(text string) string {
	fields := strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
	return " " + strings.Join(fields, " ") + " "
}

// sum names a text by its words.
func sum(text string) string {
	of := sha256.Sum256([]byte(words(text)))
	return hex.EncodeToString(of[:8])
}

// classify finds the licences that a text gives, several with " AND " between them.
func classify(text string) (names string, err error) {
	if known := looked[sum(text)]; known != "" {
		return known, nil
	}
	rest, most, found, isShort := words(text), 0, []string{}, true
	for i := range templates {
		t := &templates[i]
		for left, is := t.without(rest); is; left, is = t.without(rest) {
			rest, most, isShort = left, most+t.most, isShort && t.most == aside
			if !slices.Contains(found, t.name) {
				found = append(found, t.name)
			}
		}
	}
	all := strings.Join(found, " AND ")
	if len(found) == 0 {
		return "", errors.New("it is the text of no licence that is known here")
	}
	if n := len(strings.Fields(rest)); n > most {
		return "", fmt.Errorf("it has the text of %s and %d words besides, where %d are usual: they may restrict it", all, n, most)
	}
	for _, phrase := range telling {
		if strings.Contains(rest, " "+phrase+" ") {
			return "", fmt.Errorf("it has the text of %s and besides the words %q: they may restrict it", all, phrase)
		}
	}
	for _, word := range restricting {
		if isShort && strings.Contains(rest, " "+word+" ") {
			return "", fmt.Errorf("it has the text of %s and besides the word %q: it may be restricted", all, word)
		}
	}
	return all, nil
}

// without takes a licence out of words, if all its parts are there in their order and nothing else between them.
func (t *template) without(text string) (left string, found bool) {
	var b strings.Builder
	for i, part := range t.parts {
		before, after, there := strings.Cut(text, " "+part+" ")
		if !there {
			return "", false
		}
		switch before += " "; {
		case i == 0 || t.between == nil:
			b.WriteString(before)
		case !regexp.MustCompile(t.between[i-1]).MatchString(before):
			return "", false
		}
		text = " " + after
	}
	return b.String() + text, true
}

// refused are the licences of an expression that are not allowed.
func refused(names string) []string {
	return slices.DeleteFunc(strings.Split(names, " AND "), func(name string) bool { return slices.Contains(allowed, name) })
}
